"""Whole federations in one process, on virtual time, from one seed.

`simulate` is the entrance.
"""
