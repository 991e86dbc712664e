"""The rows of an audit: what an attack found, beside what it means.

One file per kind of attack; `row` is what all of them yield.
"""
