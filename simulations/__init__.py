"""Whole experiments in one process, on virtual time, from one seed: runs, tests at a table, attacks, audits, costs.

`run.simulate` and `testing` are for users; nothing in the other three folders knows this one.
"""
