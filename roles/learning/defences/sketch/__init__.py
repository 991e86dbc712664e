"""Sketches of layer inputs and weights, fresh in every round: their settings and their guard.

Others ask for it by name, through `defences.registry`; attacks also draw its public `CountSketch`.
"""
