"""The `veilsum` command: its table of commands, flags, output, progress, and what signals do to it.

Commands use `table` and `flags`; whatever is shown to people, of runs and audits too, is made with `output` and
`progress`, and goes into files by way of `output_file`. Whoever has something to stop in order uses `signals`.
"""
