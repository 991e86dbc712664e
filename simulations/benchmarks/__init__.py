"""What things cost, measured against physical limits and against plain programs that do the same.

Each file is one benchmark with a command of its own under `veilsum bench`; nothing else uses them.
"""
