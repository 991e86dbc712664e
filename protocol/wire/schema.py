"""From annotations to field types: a dataclass is compiled once, when it is registered.

    key: Annotated[bytes, Length(32)]
    boxes: Mapping[PartyId, Annotated[bytes, MaxLength(512)]]

Annotations are the only declaration; there is no second description of a message to keep in step.

Implements specs/wire-format.md, section 4.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, NewType, Union, get_args, get_origin

import numpy as np

from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.defects import InvalidField, WireDefect, WireError
from veilsum.protocol.wire.fields import (
    DEFAULT_MAX_BYTES,
    DEFAULT_MAX_INTEGER,
    DEFAULT_MAX_ITEMS,
    DEFAULT_MAX_TEXT,
    MAX_INTEGER,
    BooleanField,
    BytesField,
    FieldType,
    FloatField,
    IntegerField,
    MappingField,
    OptionalField,
    PartyField,
    Size,
    Source,
    Tensor,
    TensorField,
    TextField,
    TupleField,
    wrong_type,
)


@dataclass(frozen=True, slots=True)
class Length:
    """Exactly this many bytes, items, parties or numbers; with `or_empty`, also none."""

    exactly: int
    or_empty: bool = False

    def size(self) -> Size:
        """The bounds that the codec checks."""
        return Size(self.exactly, self.exactly, self.or_empty)


@dataclass(frozen=True, slots=True)
class MaxLength:
    """At most this many bytes, items, parties or numbers."""

    most: int
    least: int = 0

    def size(self) -> Size:
        """The bounds that the codec checks."""
        return Size(self.least, self.most)


@dataclass(frozen=True, slots=True)
class AtMost:
    """Largest value of an integer."""

    most: int


@dataclass(frozen=True, slots=True)
class Schema:
    """The compiled fields of one registered dataclass, in declared order."""

    cls: type
    fields: Mapping[str, FieldType]

    def settle(self, instance: object) -> None:
        """Check every field of a new instance and put the settled values in place."""
        for name, field in self.fields.items():
            value = getattr(instance, name)
            try:
                settled = field.check(value)
            except InvalidField as problem:
                raise problem.inside(f"{self.cls.__name__}.{name}") from None
            if settled is not value:
                object.__setattr__(instance, name, settled)


record_schemas: Final[dict[type, Schema]] = {}
"""Records by class: a record is registered before the first message that holds it."""


@dataclass(frozen=True, slots=True)
class RecordField(FieldType):
    """A nested record: on the wire an array of its fields in declared order."""

    schema: Schema

    def check(self, value: object) -> object:
        if type(value) is not self.schema.cls:
            raise wrong_type(f"a {self.schema.cls.__name__}", value)
        return value

    def plain(self, value: Any, tensors: list[Tensor]) -> object:
        return [field.plain(getattr(value, name), tensors) for name, field in self.schema.fields.items()]

    def read(self, source: Source) -> object:
        length, expected = source.enter_array(), len(self.schema.fields)
        if length != expected:
            defect = WireDefect.MISSING_FIELD if length < expected else WireDefect.UNKNOWN_FIELD
            raise WireError(defect, f"{self.schema.cls.__name__} has {expected} fields, not {length}")
        return self.schema.cls(*[field.read(source) for field in self.schema.fields.values()])


def compile_schema(cls: type) -> Schema:
    """The schema of a frozen dataclass; a field that cannot travel is an error of whoever declared it."""
    if not dataclasses.is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]  # typeshed hides it
        raise LocalProtocolError(f"{cls.__qualname__} must be a dataclass with frozen=True")
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except NameError as unresolved:
        raise LocalProtocolError(
            f"{cls.__qualname__}: {unresolved}; field types must be importable at run time"
        ) from unresolved
    fields = {}
    for field in dataclasses.fields(cls):
        if not field.init:
            raise LocalProtocolError(f"{cls.__qualname__}.{field.name}: init=False fields cannot be decoded")
        fields[field.name] = compile_field(hints[field.name], f"{cls.__qualname__}.{field.name}")
    return Schema(cls, types.MappingProxyType(fields))


def compile_field(annotation: Any, where: str) -> FieldType:
    bound: Length | MaxLength | AtMost | None = None
    if get_origin(annotation) is Annotated:
        annotation, *bounds = get_args(annotation)
        known = [candidate for candidate in bounds if isinstance(candidate, Length | MaxLength | AtMost)]
        if len(known) != 1:
            raise LocalProtocolError(f"{where}: give exactly one of Length, MaxLength, AtMost")
        bound = known[0]
    field = _compile_scalar(annotation, bound) or _compile_container(annotation, bound, where)
    if field is None:
        raise LocalProtocolError(f"{where}: {annotation!r} with bound {bound} cannot be a message field")
    return field


def _size(bound: Length | MaxLength | AtMost | None, default_most: int) -> Size:
    if isinstance(bound, Length | MaxLength):
        return bound.size()
    return Size(0, default_most)


def _compile_scalar(annotation: Any, bound: Length | MaxLength | AtMost | None) -> FieldType | None:
    if annotation is PartyId:
        return PartyField() if bound is None else None
    if isinstance(annotation, NewType):
        annotation = annotation.__supertype__
    if annotation is int and (bound is None or isinstance(bound, AtMost)):
        return IntegerField(DEFAULT_MAX_INTEGER if bound is None else bound.most)
    if annotation is float and bound is None:
        return FloatField()
    if annotation is bool and bound is None:
        return BooleanField()
    if isinstance(bound, AtMost):
        return None
    if annotation is str:
        return TextField(_size(bound, DEFAULT_MAX_TEXT))
    if annotation is bytes:
        return BytesField(_size(bound, DEFAULT_MAX_BYTES))
    if annotation is np.ndarray or get_origin(annotation) is np.ndarray:
        return TensorField(_size(bound, MAX_INTEGER))
    return None


def _compile_container(
    annotation: Any, bound: Length | MaxLength | AtMost | None, where: str
) -> FieldType | None:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(bound, AtMost):
        return None
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return TupleField(compile_field(arguments[0], f"{where}[]"), _size(bound, DEFAULT_MAX_ITEMS))
    if origin is Mapping and arguments[0] is PartyId:
        return MappingField(compile_field(arguments[1], f"{where}[]"), _size(bound, DEFAULT_MAX_ITEMS))
    if bound is not None:
        return None
    if origin in (Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        item = arguments[0] if arguments[1] is type(None) else arguments[1]
        return OptionalField(compile_field(item, where))
    if isinstance(annotation, type) and annotation in record_schemas:
        return RecordField(record_schemas[annotation])
    return None
