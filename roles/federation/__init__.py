"""A federation's folder and what lies in it: keys, the signed roster, pins, enrolment.

A party comes in by `folder.enter_federation`, an observer by `folder.load_federation`; `enrolment` makes and changes
one.
"""
