"""Who waits for whom: a server for parties before it begins, and a party that has all rounds for a server.

`run.py` uses `quorum.Quorum` and `staying.take_part`. Nothing here changes what the machines decide.
"""
