"""Local training: tasks, data, splits, models, devices. Importing this package alone imports no torch."""
