"""A federation's folder and what lies in it: keys, the signed roster, pins, the first model, enrolment.

A party comes in by `folder.enter_federation`, an observer by `folder.load_federation`; `enrolment` makes and changes
one, and `admission` says whom its broker lets in.
"""
