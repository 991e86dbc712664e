"""What a user names as `package.module:name`: a task, a scheme or anything else of their own.

The current folder counts as well, after everything that is installed, so that a file beside the command works
without PYTHONPATH and shadows nothing. Naming a module runs its code: names come from a party's own command line or
configuration, never from the network.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from veilsum.protocol.errors import ParameterError


class UserCodeNotFound(ParameterError):
    """The module that a user named cannot be imported."""

    def __init__(self, what: str, text: str, module: str, why: object, remedy: str) -> None:
        super().__init__([f"{what} {text!r}: module {module} cannot be imported ({why}); {remedy}"])


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
    if not all(part.isidentifier() for part in module.split(".")):
        raise UserCodeNotFound(what, text, module, "no name of a module", "write package.module:Name")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        return UserCode(importlib.import_module(module), name)
    except ParameterError:
        raise
    except ModuleNotFoundError as error:
        raise UserCodeNotFound(what, text, module, error, "is it installed or on PYTHONPATH?") from error
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"
        raise UserCodeNotFound(what, text, module, why, "correct the module") from error


@contextmanager
def making(what: str, text: str, advice: str) -> Iterator[None]:
    """Whatever the code of a user raises while something is made of it is an error in what was named."""
    try:
        yield
    except ParameterError:
        raise
    except Exception as error:
        raise ParameterError([f"{what} {text!r} raised {type(error).__name__}: {error}; {advice}"]) from error
