"""A federation's folder and what lies in it: keys, the signed roster, pins, enrolment.

`folder.load_federation` is the entrance.
"""
