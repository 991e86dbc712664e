"""Whole experiments in one process, on virtual time, from one seed: runs, tests at a table, attacks, audits, costs.

`run.simulate` and `testing` are for users. Nothing in the other three folders imports this one; the table of commands
in `roles/cli/main.py` names its commands as text.
"""
