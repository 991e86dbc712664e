"""Attacks on whole models: who can form the global one, and which images its classes stand for.

Each file is one attack.
"""
