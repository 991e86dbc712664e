"""Defences inside local training: they change what a party computes, not how it travels.

Reading and checking a defence needs no torch (parse.py, settings.py); only a learner that trains loads it.
"""
