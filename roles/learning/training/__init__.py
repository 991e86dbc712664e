"""Local training with torch: the loop, optimisers, devices, and a model as one flat vector.

`torch_learner` is the entrance; the rest of the roles know only `learning.contract`.
"""
