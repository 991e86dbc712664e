"""What a user names as `package.module:name`: a task, a scheme or anything else of their own.

The current folder counts as well, after everything that is installed, so that a file beside the command works
without PYTHONPATH and shadows nothing. Naming a module runs its code: names come from a party's own command line or
configuration, never from the network.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from veilsum.protocol.errors import ParameterError


class UserCodeNotFound(ParameterError):
    """The module that a user named cannot be imported."""

    def __init__(self, what: str, text: str, module: str, why: object) -> None:
        super().__init__(
            [
                f"{what} {text!r}: module {module} cannot be imported ({why}); is it installed or on PYTHONPATH?"
            ]
        )


@dataclass(frozen=True)
class UserCode:
    """An imported module, and what its user named in it."""

    module: ModuleType
    name: str

    def value(self) -> Any:
        """What the module has under the name; None if it has nothing."""
        return getattr(self.module, self.name, None)


def load_named(what: str, text: str) -> UserCode:
    """Import the module of `package.module:name`; `what` is the word for it in an error."""
    module, _, name = text.rpartition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        return UserCode(importlib.import_module(module), name)
    except (ImportError, ValueError) as error:
        raise UserCodeNotFound(what, text, module, error) from error
