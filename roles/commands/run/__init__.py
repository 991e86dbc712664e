"""Commands that run a federation: roles, broker, launch, and where everyone is.

One file per command, named in the table of `roles/cli/main.py`.
"""
