"""Local training: tasks, data, splits, models, devices. Importing this package alone imports no torch.

Tasks of one's own use `task`; everything else asks `factory` for a learner and knows it by `contract`.
"""
