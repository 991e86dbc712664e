"""The secret polarization network, a private head beside the shared one: its settings and its guard.

Others ask for it by name, through `defences.registry`.
"""
