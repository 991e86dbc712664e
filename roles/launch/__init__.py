"""Roles as processes of one machine that are started, watched, restarted and stopped, and end with who started them.

`processes.Launch` runs a whole federation, forked from a `nursery`; `display` is what people see of it. `hosting`
stands around a server for parties elsewhere. `ourselves` is how any process starts another of this installation.
"""
