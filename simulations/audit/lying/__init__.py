"""Rows of a server that lies: what it gets where it is believed, and how it is refused where parties hold the chain.

`told.py` plays a lie among honest machines; each other file has the rows of one.
"""
