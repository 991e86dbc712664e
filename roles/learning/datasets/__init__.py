"""The built-in tasks, one file each: a function `(options: TaskOptions) -> Task`. Nothing here downloads.

They are found by name, through `registry`; `vectors` alone, which trains nothing, is known by its class.
"""
