"""Attacks on server-side perturbation, by a curious client unless said otherwise.

Each file is one attack, or the equations that several share; what they have in common stands in `kinds.py`.
"""
