"""Membership inference: was this sample in the training set of this model?

Each file is one attack or a family of them.
"""
