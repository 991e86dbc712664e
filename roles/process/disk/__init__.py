"""What a state folder holds besides checkpoints: large parts of a state, and the note of a party that never took part.

Only roles/process/checkpoint.py touches the parts, each in two files, so that one that is damaged takes nothing with
it. The note is written by who makes the keys, and taken away by the first start. `lost_folder.py` says what is done
where nothing is readable.
"""
