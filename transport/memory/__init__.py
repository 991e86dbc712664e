"""Networks in memory: on virtual time for simulations, on asyncio for tests, with faults as data.

`switchboard` has the interface of every link; `network` is an event queue that a simulation takes its next event from.
"""
