"""Schemes as users name them: `masked`, or `package.module:Name` for one of their own, by its class or its name."""

from __future__ import annotations

from veilsum.protocol.errors import ParameterError
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
        return _registered(text, named)
    return find_scheme(text)


def _registered(text: str, named: type[Scheme]) -> Scheme:
    if not isinstance(getattr(named, "name", None), str):
        raise ParameterError([f'scheme {text!r}: {named.__name__} has no name: give it one, name = "..."'])
    missing = sorted(getattr(named, "__abstractmethods__", ()))
    if missing:
        raise ParameterError([f"scheme {text!r}: {named.__name__} lacks {', '.join(missing)}"])
    register(named)
    return find_scheme(named.name)
