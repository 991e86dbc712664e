"""Training on a perturbed model with the network of a task: the side of the server and that of a client.

What schemes are given are the contracts of `protocol/schemes/perturbed/equipment.py`.
"""
