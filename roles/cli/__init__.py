"""The `veilsum` command: its table of commands, flags, output and progress.

Commands use `table`, `flags` and `output`; nothing else needs this room.
"""
