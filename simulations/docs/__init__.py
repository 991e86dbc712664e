"""Pages of specs/ that are drawn from the code.

`python -m veilsum.simulations.docs specs` writes all of them.
"""
