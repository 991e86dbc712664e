"""With what number a command ends, for whoever calls it from a script."""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_BAD_REQUEST = 2
"""What was asked for cannot work: settings, names, files or keys do not fit."""
EXIT_LEAKS = 3
"""`veilsum audit --fail-on` found a leak."""
EXIT_INTERRUPTED = 130
"""As shells count a SIGINT."""
