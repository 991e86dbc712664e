"""Schemes as users name them: `masked`, or `package.module:Name` for one of their own, by its class or its name.

Implements specs/schemes.md, section 2.
"""

from __future__ import annotations

from veilsum.protocol.machines.scheme import Scheme
from veilsum.protocol.schemes.registry import find_scheme, register
from veilsum.roles.config.user_code import load_named


def load_scheme(text: str) -> Scheme:
    """The scheme; the module of `package.module:Name` is imported first, so that it can register.

    A class that is named itself need not be registered. Either way a name that is taken is refused.
    """
    if ":" not in text:
        return find_scheme(text)
    code = load_named("scheme", text)
    named = code.value()
    if isinstance(named, type) and issubclass(named, Scheme):
        return find_scheme(register(named).name)
    return find_scheme(text)
