"""Modules that a user names, as `package.module:function`: a task or a scheme of their own.

The current folder counts as well, after everything that is installed, so that a file beside the command works
without PYTHONPATH and shadows nothing. Naming a module runs its code: names come from a party's own command line or
configuration, never from the network.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType


def import_named(module: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    return importlib.import_module(module)
