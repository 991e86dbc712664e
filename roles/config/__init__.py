"""The settings of a federation: one table of them, the value they make, and the file they are kept in.

`FederationConfig` is what everything else works with.
"""
