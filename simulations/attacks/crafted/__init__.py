"""Attacks by a server that chooses the model: one whose gradients hold single samples, whoever adds them up.

Each file is one attack; what they share is in `craft.py`.
"""
