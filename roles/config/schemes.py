"""Schemes as users name them: `masked`, or `package.module:Name` or `./ballot.py:Name` for one of their own.

The name after the colon is that of the class, or the one that the module registers it under.

Implements specs/schemes.md, section 2.
"""

from __future__ import annotations

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.machines.scheme import Scheme
from veilsum.protocol.schemes.registry import find_scheme, register, scheme_names
from veilsum.roles.config.spelling import did_you_mean, near_names
from veilsum.roles.config.user_code import OWN, CodeAccess, UserCode, load_named


def load_scheme(text: str, access: CodeAccess = OWN) -> Scheme:
    """The scheme; a module that it is named with is imported first, so that it can register.

    A class that is named itself need not be registered. Either way a name that is taken is refused.
    """
    if ":" not in text:
        return _registered(text)
    code = load_named("scheme", text, access)
    named = code.value()
    if isinstance(named, type) and issubclass(named, Scheme):
        return find_scheme(register(named).name)
    try:
        return find_scheme(text)
    except ParameterError as error:
        raise ParameterError([_nothing_there(text, code)]) from error


def _registered(name: str) -> Scheme:
    try:
        return find_scheme(name)
    except ParameterError as error:
        raise ParameterError([f"{error}{did_you_mean(name, scheme_names())}"]) from error


def _nothing_there(text: str, code: UserCode) -> str:
    module = code.module
    classes = [
        name for name, one in vars(module).items() if isinstance(one, type) and issubclass(one, Scheme)
    ]
    near = near_names(code.name, classes)
    remedy = f"did you mean {near[0]}?" if near else "name the class, or the name that it is registered under"
    return f"scheme {text!r}: {module.__name__} has no class {code.name} that extends Scheme; {remedy}"
