"""Commands before a federation runs: settings, keys, and the room that numbers need.

One file per command, named in the table of `roles/cli/main.py`.
"""
