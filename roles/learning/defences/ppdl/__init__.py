"""Selective sharing of the largest entries of the change: its settings and its guard."""
