"""Commands on the model that a party holds.

One file per command, named in the table of `roles/cli/main.py`.
"""
