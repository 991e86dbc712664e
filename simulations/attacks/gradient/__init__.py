"""Gradient inversion: from an update back to the data it was computed on.

Each file is one attack; `targets` says what a view offers them.
"""
