"""Commands of the `veilsum` table that run a whole experiment.

One file per command, named in the table of `roles/cli/main.py` or in that of its folder, and used by nothing else.
"""
