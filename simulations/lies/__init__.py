"""Named lies: parties that break the protocol on purpose, in a simulation or at a table, beside honest machines.

`registry.py` has them by name, `play.py` tells one and watches what becomes of it.
"""
