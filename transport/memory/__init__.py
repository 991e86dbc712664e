"""Networks in memory: on virtual time for simulations, on asyncio for tests, with faults as data.

The interface is that of every other transport.
"""
