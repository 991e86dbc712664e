"""A study to begin with: the files that `veilsum new` writes beside the federation that it makes.

`study.write_study` is used from outside. What the files say stands in templates/, and the people in them are made up.
"""
