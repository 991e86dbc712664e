"""Attacks that use several rounds: noise averages out, sketches add up, seeds repeat.

Each file is one attack or a family of them.
"""
