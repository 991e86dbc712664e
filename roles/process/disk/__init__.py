"""Large parts of a state on disk, each in two files, so that one that is damaged takes nothing with it.

Only roles/process/checkpoint.py touches them.
"""
