"""What a state folder holds besides checkpoints: large parts of a state, each in two files, so that one that is damaged
takes nothing with it, which only roles/process/checkpoint.py touches; and the note of a party that never took part.
"""
