"""Hypothesis strategies for messages, derived from the declared types of their fields.

    @given(message_strategy(RoundKeys))
    def test_something(keys: RoundKeys) -> None: ...

A message class needs nothing but its annotations. A field whose values must hang together with another one
can be given its own strategy by name: `message_strategy(Interval, first=st.just(0))`.

Implements specs/testing.md, section 3.
"""

from __future__ import annotations

import string
from typing import Any, TypeVar

import hypothesis
import numpy as np
from hypothesis import strategies as st

from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.defects import InvalidField
from veilsum.protocol.wire.fields import (
    TENSOR_DTYPES,
    BooleanField,
    BytesField,
    FieldType,
    FloatField,
    IntegerField,
    MappingField,
    OptionalField,
    PartyField,
    Size,
    Tensor,
    TensorField,
    TextField,
    TupleField,
)
from veilsum.protocol.wire.messages import Message, message_schema
from veilsum.protocol.wire.schema import RecordField, Schema, record_schemas

M = TypeVar("M", bound=Message)
R = TypeVar("R")

_FIRST = string.ascii_lowercase + string.digits
_FEW = 4


def message_strategy(cls: type[M], **chosen: st.SearchStrategy[Any]) -> st.SearchStrategy[M]:
    """Valid messages of one class."""
    return _build(cls, message_schema(cls), chosen)


def record_strategy(cls: type[R], **chosen: st.SearchStrategy[Any]) -> st.SearchStrategy[R]:
    """Valid records of one class."""
    return _build(cls, record_schemas[cls], chosen)


def party_ids() -> st.SearchStrategy[PartyId]:
    """Valid names of parties, single ones."""
    rest = st.text(alphabet=_FIRST + "-_", max_size=62)
    return st.builds(lambda first, tail: PartyId(first + tail), st.sampled_from(_FIRST), rest)


def _build(cls: type[R], schema: Schema, chosen: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[R]:
    unknown = chosen.keys() - schema.fields.keys()
    if unknown:
        raise TypeError(f"{cls.__name__} has no field {', '.join(sorted(unknown))}")
    parts = {name: chosen.get(name, field_strategy(field)) for name, field in schema.fields.items()}

    def build(values: dict[str, Any]) -> R:
        try:
            return cls(**values)
        except InvalidField:
            hypothesis.reject()

    return st.fixed_dictionaries(parts).map(build)


def field_strategy(field: FieldType) -> st.SearchStrategy[Any]:
    """Valid values of one field type."""
    match field:
        case IntegerField():
            return st.integers(0, field.most)
        case FloatField():
            return st.floats(allow_nan=False, allow_infinity=False)
        case BooleanField():
            return st.booleans()
        case TextField():
            return _texts(field.size)
        case BytesField():
            return _lengths(field.size).flatmap(lambda length: st.binary(min_size=length, max_size=length))
        case PartyField():
            return party_ids()
        case OptionalField():
            return st.none() | field_strategy(field.item)
        case RecordField():
            return _build(field.schema.cls, field.schema, {})
        case TensorField():
            return _tensors(field.size)
    return _container_strategy(field)


def _container_strategy(field: FieldType) -> st.SearchStrategy[Any]:
    if isinstance(field, TupleField):
        least, most = _least_and_few(field.size)
        return st.lists(field_strategy(field.item), min_size=least, max_size=most).map(tuple)
    if isinstance(field, MappingField):
        least, most = _least_and_few(field.size)
        return st.dictionaries(party_ids(), field_strategy(field.item), min_size=least, max_size=most)
    raise TypeError(f"no strategy for {field}")


def _least_and_few(size: Size) -> tuple[int, int]:
    return size.least, min(size.most, size.least + _FEW)


def _lengths(size: Size) -> st.SearchStrategy[int]:
    """Small sizes, the largest that is not large, and none where that is allowed."""
    lengths = st.integers(size.least, min(size.most, size.least + 32))
    return st.just(0) | lengths if size.or_empty else lengths


def _texts(size: Size) -> st.SearchStrategy[str]:
    texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=size.least, max_size=size.least + 8)
    return texts.filter(lambda text: size.least <= len(text.encode()) <= size.most)


def _tensors(size: Size) -> st.SearchStrategy[Tensor]:
    def arrays(dtype_and_length: tuple[str, int]) -> st.SearchStrategy[Tensor]:
        dtype, length = dtype_and_length
        nbytes = length * np.dtype(dtype).itemsize
        raw = st.binary(min_size=nbytes, max_size=nbytes)
        return raw.map(lambda data: np.frombuffer(bytearray(data), dtype=dtype))

    return st.tuples(st.sampled_from(TENSOR_DTYPES), _lengths(size)).flatmap(arrays)
