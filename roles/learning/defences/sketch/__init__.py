"""Sketches of layer inputs and weights, fresh in every round: their settings and their guard."""
