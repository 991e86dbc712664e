"""A whole federation on one machine: every role as a process that is started, watched, restarted and stopped.

`processes.Launch` runs it; `display` is what people see of it.
"""
