"""One role as an operating-system process: a machine, its driver, and what it still knows after a restart.

`run.run_role` is the entrance. Simulations use the same machines, pump, observers, entropy and persistent state.
"""
