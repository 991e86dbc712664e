"""Selective sharing of the largest entries of the change: its settings and its guard.

Others ask for it by name, through `defences.registry`.
"""
