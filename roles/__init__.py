"""Role processes: they join the pure protocol and the transport in time.

`process.run.run_role` runs one, `config` and `federation` say which; simulations use the same parts on virtual time.
"""
