"""The smallest valid message of any registered kind, built from the declared types of its fields."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from veilsum.protocol.wire.fields import (
    BooleanField,
    BytesField,
    FieldType,
    FloatField,
    IntegerField,
    MappingField,
    OptionalField,
    PartyField,
    TensorField,
    TextField,
    TupleField,
)
from veilsum.protocol.wire.messages import Message, message_schema
from veilsum.protocol.wire.schema import RecordField


@cache
def smallest_message(kind: type[Message]) -> Message:
    return kind(**{name: smallest_value(field) for name, field in message_schema(kind).fields.items()})


def smallest_value(field: FieldType) -> Any:
    match field:
        case IntegerField() | FloatField() | BooleanField():
            return {IntegerField: 0, FloatField: 0.0, BooleanField: False}[type(field)]
        case TextField():
            return "x" * field.size.least
        case BytesField():
            return bytes(field.size.least)
        case PartyField():
            return "p0"
        case OptionalField():
            return None
        case TensorField():
            return np.zeros(field.size.least, dtype=np.float32)
        case TupleField():
            return (smallest_value(field.item),) * field.size.least
        case MappingField():
            return {f"p{index}": smallest_value(field.item) for index in range(field.size.least)}
        case RecordField():
            parts = field.schema.fields.items()
            return field.schema.cls(**{name: smallest_value(part) for name, part in parts})
    raise TypeError(f"no sample for {field}")
