"""The built-in tasks, one file each: a function `(options: TaskOptions) -> Task`. Nothing here downloads."""
