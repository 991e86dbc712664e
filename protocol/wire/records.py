"""Records: what the decorators install on a frozen dataclass.

Checked construction, equality by content, and a repr without content. The checks wrap `__init__` and are not
a `__post_init__` of a base class, because a dataclass that defines its own would then switch them off.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from veilsum.protocol.wire.defects import InvalidField, WireDefect
from veilsum.protocol.wire.schema import Schema, compile_schema, record_schemas

T = TypeVar("T")


def record(cls: type[T]) -> type[T]:
    """Register a frozen dataclass that messages may hold as a field."""
    schema = compile_schema(cls)
    install_rules(cls, schema)
    record_schemas[cls] = schema
    return cls


def install_rules(cls: type, schema: Schema) -> None:
    """Give a dataclass checked construction, equality by content, and a repr without content."""
    build: Callable[..., None] = cls.__dict__["__init__"]

    @functools.wraps(build)
    def checked_init(self: object, *arguments: Any, **named: Any) -> None:
        build(self, *arguments, **named)
        schema.settle(self)
        _require_consistent(self)

    replacements = {"__init__": checked_init, "__eq__": _equal, "__hash__": None, "__repr__": _describe}
    for name, replacement in replacements.items():
        setattr(cls, name, replacement)


def _require_consistent(instance: object) -> None:
    rule = getattr(instance, "require_consistent", None)
    if rule is None:
        return
    try:
        rule()
    except ValueError as problem:
        raise InvalidField(WireDefect.OUT_OF_BOUNDS, str(problem), type(instance).__name__) from None


def _equal(self: object, other: object) -> bool:
    return type(self) is type(other) and all(
        _same(getattr(self, name), getattr(other, name)) for name in _names(self)
    )


def _names(instance: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(instance)]


def _same(left: object, right: object) -> bool:
    """Arrays are equal when their bytes are, so that a NaN equals itself."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left.view(np.uint8), right.view(np.uint8))
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(_same(item, right[key]) for key, item in left.items())
    return bool(left == right)


def _describe(self: object) -> str:
    shown = ", ".join(f"{name}={_summary(getattr(self, name))}" for name in _names(self))
    return f"{type(self).__name__}({shown})"


def _summary(value: object) -> str:
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, np.ndarray):
        return f"<{value.size} x {value.dtype.str}>"
    if isinstance(value, Mapping):
        return f"<{len(value)} parties>"
    if isinstance(value, tuple):
        return f"<{len(value)} items>"
    return repr(value)
