"""Runs a module of this very package in a Python of its own: `python -P .../again.py MODULE ARGUMENTS`.

`python -m veilsum` looks the package up on the path, where the current folder, PYTHONPATH or a checkout called veilsum
can come first. This file is started by its place and takes the package that it lies in, so that no folder shadows it:
what a process starts is always of the same installation as the process itself.
"""

from __future__ import annotations

import runpy
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path


def take_own_package() -> None:
    """Make the package that holds this file the one that `import veilsum` gives."""
    here = Path(__file__).parents[2]
    spec = spec_from_file_location(here.name, here / "__init__.py", submodule_search_locations=[str(here)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{here} holds no package")
    package = sys.modules[here.name] = module_from_spec(spec)
    spec.loader.exec_module(package)


if __name__ == "__main__":
    take_own_package()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
