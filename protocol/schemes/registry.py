"""The schemes by name: how one registers, and how one is found.

Importing the package registers the schemes that are built in; a module of a user registers its own when it is
imported. A name can be taken once, so no class ever takes the place of another.

Implements specs/schemes.md, section 2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.machines.scheme import Scheme

S = TypeVar("S", bound=type[Scheme])

_NAME = re.compile(r"[\w.-]+")
_registry: dict[str, Scheme] = {}


def register(cls: S) -> S:
    """Make a scheme known under its name; a name can be taken once."""
    _require_name(cls)
    known = _registry.get(cls.name)
    if known is not None and _home_of(type(known)) != _home_of(cls):
        raise ParameterError(
            [
                f"a scheme named {cls.name!r} is registered already: {_home_of(type(known))}; "
                f"give {_home_of(cls)} a name of its own"
            ]
        )
    _registry[cls.name] = _make(cls)
    return cls


def scheme_names() -> tuple[str, ...]:
    """The names of all registered schemes, sorted."""
    return tuple(sorted(_registry))


def find_scheme(name: str) -> Scheme:
    """The scheme of this name; `package.module:Name` finds what that module has registered, and imports nothing."""
    if name in _registry:
        return _registry[name]
    module, _, last = name.rpartition(":")
    theirs = [scheme for scheme in _registry.values() if type(scheme).__module__ == module]
    for scheme in sorted(theirs, key=lambda one: type(one).__qualname__ != last):
        if last in (type(scheme).__qualname__, scheme.name):
            return scheme
    raise ParameterError([f"unknown scheme {name!r}; known schemes: {', '.join(sorted(_registry))}"])


def _require_name(cls: type[Scheme]) -> None:
    name: object = getattr(cls, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ParameterError(
            [
                f"scheme {_home_of(cls)} has the name {name!r}: give it one of letters, digits, '-', '_' and '.'"
            ]
        )


def _make(cls: type[Scheme]) -> Scheme:
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    missing += [] if isinstance(getattr(cls, "learns", None), Mapping) else ["learns"]
    if missing:
        raise ParameterError([f"scheme {_home_of(cls)} lacks {', '.join(missing)}: give it each of them"])
    options: object = cls.options
    if isinstance(options, str):
        raise ParameterError([f"scheme {_home_of(cls)} has a text as options: write ({options!r},)"])
    try:
        return cls()
    except Exception as error:
        raise ParameterError(
            [
                f"scheme {_home_of(cls)} cannot be made without arguments ({type(error).__name__}: {error}): correct "
                "its __init__"
            ]
        ) from error


def _home_of(cls: type[Scheme]) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"
