"""What things cost, measured against physical limits and against the nearest peers.

Each file is one benchmark with a command of its own under `veilsum bench`; nothing else uses them.
"""
