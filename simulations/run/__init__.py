"""Whole federations in one process, on virtual time, from one seed.

`simulate` is the entrance. `result` has what became of a run as facts, of which `report` makes texts and `page` a page.
"""
