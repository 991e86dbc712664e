"""What one adversary of a run saw and knows: as a value, as a file, and how a process records its own.

Processes and simulations share it; attacks get a `View` and nothing else.
"""
