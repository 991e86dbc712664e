"""The `veilsum` command: its table of commands, flags, output and progress.

Commands use `table` and `flags`; whatever is shown to people, of runs and audits too, is made with `output` and
`progress`.
"""
