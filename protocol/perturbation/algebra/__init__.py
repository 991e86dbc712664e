"""The arithmetic of a round on a perturbed model: the server's key, the clients' terms, the exchange, the recovery.

Everything here works from a traced plan; randomness is an argument.
"""
