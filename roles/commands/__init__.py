"""Commands of the `veilsum` table that need no simulation, in folders by what they are for.

One file per command, named in the table of `roles/cli/main.py` and used by nothing else.
"""
