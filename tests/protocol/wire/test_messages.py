"""A registered message cannot be built invalid, and says which field is wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given

from tests.support.refusals import refusal
from tests.support.wire_examples import Boxes, Empty, Everything, Interval, MaskedInput, RoundKeys, Share
from veilsum.protocol.errors import AbortReason, EncodingError, LocalProtocolError
from veilsum.protocol.identifiers import PartyId, SessionId
from veilsum.protocol.wire.defects import InvalidField, WireDefect, WireError
from veilsum.protocol.wire.messages import (
    AtMost,
    Length,
    MaxLength,
    Message,
    Stamp,
    Tensor,
    kind_of,
    message,
    message_class,
    record,
    registered_messages,
)
from veilsum.simulations.testing import message_strategy

STAMP = Stamp(session=bytes(32), round=3, attempt=1, model_hash=bytes(range(32)))
ALICE = PartyId("alice")


def everything(**changed: Any) -> Everything:
    good: dict[str, Any] = {
        "stamp": STAMP,
        "count": 2**48 - 1,
        "bounded": 7,
        "weight": 0.5,
        "ready": True,
        "note": "päivää",
        "short_note": "",
        "key": bytes(32),
        "blob": b"",
        "leader": ALICE,
        "deputy": None,
        "order": (ALICE, PartyId("bob")),
        "counts": (1, 2),
        "boxes": {"bob": b"b", "alice": b"a"},
        "share": Share(ALICE, 1, None),
        "spare": None,
        "shares": {"bob": (Share(ALICE, 1, bytes(34)),)},
        "vector": np.arange(3, dtype="<u8"),
        "terms": {"bob": np.zeros(1, "<f4")},
        "parts": (np.zeros(0, "|u1"),),
        "bias": None,
        "pair": np.zeros(2, "<f8"),
    }
    return Everything(**(good | changed))


WRONG = [
    ("count", -1, WireDefect.OUT_OF_BOUNDS, "Everything.count"),
    ("count", 2**48, WireDefect.OUT_OF_BOUNDS, "Everything.count"),
    ("count", True, WireDefect.WRONG_TYPE, "Everything.count"),
    ("count", np.uint64(1), WireDefect.WRONG_TYPE, "Everything.count"),
    ("bounded", 8, WireDefect.OUT_OF_BOUNDS, "Everything.bounded"),
    ("weight", float("nan"), WireDefect.OUT_OF_BOUNDS, "Everything.weight"),
    ("weight", float("inf"), WireDefect.OUT_OF_BOUNDS, "Everything.weight"),
    ("weight", 1, WireDefect.WRONG_TYPE, "Everything.weight"),
    ("ready", 1, WireDefect.WRONG_TYPE, "Everything.ready"),
    ("note", b"text", WireDefect.WRONG_TYPE, "Everything.note"),
    ("note", "\ud800", WireDefect.BAD_TEXT, "Everything.note"),
    ("note", "x" * 1025, WireDefect.OUT_OF_BOUNDS, "Everything.note"),
    ("short_note", "ääääa", WireDefect.OUT_OF_BOUNDS, "Everything.short_note"),
    ("key", bytes(31), WireDefect.OUT_OF_BOUNDS, "Everything.key"),
    ("key", bytearray(32), WireDefect.WRONG_TYPE, "Everything.key"),
    ("key", None, WireDefect.WRONG_TYPE, "Everything.key"),
    ("blob", bytes(65_537), WireDefect.OUT_OF_BOUNDS, "Everything.blob"),
    ("leader", "Alice!", WireDefect.OUT_OF_BOUNDS, "Everything.leader"),
    ("leader", 7, WireDefect.WRONG_TYPE, "Everything.leader"),
    ("order", ["alice"], WireDefect.WRONG_TYPE, "Everything.order"),
    ("order", ("alice", ""), WireDefect.OUT_OF_BOUNDS, "Everything.order[1]"),
    ("counts", (1, 2, 3, 4, 5), WireDefect.OUT_OF_BOUNDS, "Everything.counts"),
    ("boxes", {"bob": bytes(513)}, WireDefect.OUT_OF_BOUNDS, "Everything.boxes['bob']"),
    ("boxes", {3: b""}, WireDefect.WRONG_TYPE, "Everything.boxes[3]"),
    ("boxes", (), WireDefect.WRONG_TYPE, "Everything.boxes"),
    ("share", None, WireDefect.WRONG_TYPE, "Everything.share"),
    ("shares", {"bob": (1,)}, WireDefect.WRONG_TYPE, "Everything.shares['bob'][0]"),
    ("vector", [1, 2], WireDefect.WRONG_TYPE, "Everything.vector"),
    ("vector", np.zeros((2, 2)), WireDefect.WRONG_TYPE, "Everything.vector"),
    ("vector", np.zeros(4)[::2], WireDefect.WRONG_TYPE, "Everything.vector"),
    ("vector", np.zeros(2, ">u8"), WireDefect.WRONG_TYPE, "Everything.vector"),
    ("vector", np.zeros(2, "<i8"), WireDefect.WRONG_TYPE, "Everything.vector"),
    ("pair", np.zeros(3), WireDefect.OUT_OF_BOUNDS, "Everything.pair"),
    ("stamp", None, WireDefect.WRONG_TYPE, "Everything.stamp"),
]


@pytest.mark.parametrize(("field", "value", "defect", "path"), WRONG)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(
    field: str, value: object, defect: WireDefect, path: str
) -> None:
    with pytest.raises(InvalidField) as caught:
        everything(**{field: value})
    assert (caught.value.defect, caught.value.path) == (defect, path)
    assert isinstance(caught.value, EncodingError)


@pytest.mark.parametrize("session", [b"", bytes(32)])
def test_a_stamp_exists_before_and_in_a_session(session: bytes) -> None:
    assert Stamp(session).session == session


@pytest.mark.parametrize("field", ["session", "model_hash"])
def test_a_stamp_refuses_other_lengths(field: str) -> None:
    with refusal(InvalidField, f"Stamp.{field}", 31, 0, 32):
        Stamp(**{field: bytes(31)})


def test_a_rule_over_several_fields_is_part_of_construction() -> None:
    assert Interval(STAMP, 1, 1).last == 1
    with refusal(InvalidField, "first", "last"):
        Interval(STAMP, 2, 1)
    with refusal(InvalidField, "first", "last"):
        dataclasses.replace(Interval(STAMP, 1, 1), first=2)


def test_arrays_inside_a_message_are_read_only_views() -> None:
    mine = np.arange(4, dtype="<u8")
    inside = MaskedInput(STAMP, mine).vector
    assert np.shares_memory(mine, inside)
    assert mine.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        inside[0] = 1


def test_mappings_inside_a_message_are_immutable_sorted_copies() -> None:
    mine = {PartyId("bob"): b"b", ALICE: b"a"}
    inside = Boxes(STAMP, mine).boxes
    mine.clear()
    assert list(inside) == ["alice", "bob"]
    with pytest.raises(TypeError):
        inside[ALICE] = b""  # type: ignore[index]  # that is the point


@given(message_strategy(Everything))
def test_equality_is_by_content(original: Everything) -> None:
    """A message equals a message rebuilt from copies of its parts, NaNs in tensors included."""
    copied = original.vector.copy()
    assert dataclasses.replace(original, vector=copied) == original
    longer = np.append(copied, copied.dtype.type(0))
    assert dataclasses.replace(original, vector=longer) != original
    assert dataclasses.replace(original, ready=not original.ready) != original


def test_equality_looks_at_bytes_types_and_every_depth() -> None:
    nan = np.array([np.nan])
    assert MaskedInput(STAMP, nan) == MaskedInput(STAMP, nan.copy())
    assert MaskedInput(STAMP, np.zeros(1, "<u4")) != MaskedInput(STAMP, np.zeros(1, "<f4"))
    assert everything(parts=(np.zeros(1),)) != everything(parts=(np.ones(1),))
    assert everything(terms={"bob": np.zeros(1)}) != everything(terms={"bob": np.ones(1)})
    assert everything(terms={"bob": np.zeros(1)}) != everything(terms={"carol": np.zeros(1)})
    assert Empty(STAMP) != Empty(Stamp())
    assert Empty(STAMP) != STAMP


def test_repr_shows_sizes_and_no_content() -> None:
    shown = repr(
        everything(
            key=b"SECRET-SECRET-SECRET-SECRET-SECR",
            boxes={"bob": b"SECRET"},
            share=Share(ALICE, 1, b"SECRET" + bytes(28)),
            vector=np.array([123456789], "<u8"),
        )
    )
    assert "SECRET" not in shown
    assert "123456789" not in shown
    assert "key=<32 bytes>" in shown
    assert "vector=<1 x <u8>" in shown


def test_messages_are_found_by_kind() -> None:
    assert message_class("example.boxes") is Boxes
    assert kind_of(Boxes(STAMP, {})) == kind_of(Boxes) == "example.boxes"
    assert registered_messages()["example.boxes"] is Boxes
    with pytest.raises(WireError) as caught:
        message_class("example.nothing")
    assert (caught.value.defect, caught.value.reason) == (WireDefect.UNKNOWN_KIND, AbortReason.BAD_ENCODING)


def test_a_kind_belongs_to_one_class() -> None:
    @dataclass(frozen=True, slots=True)
    class Boxlike(Message):
        stamp: Stamp

    with refusal(LocalProtocolError, "example.boxes", "Boxes"):
        message("example.boxes")(Boxlike)
    assert message_class("example.boxes") is Boxes
    with pytest.raises(LocalProtocolError, match="not registered"):
        kind_of(Boxlike)


def test_a_class_defined_again_in_the_same_place_replaces_the_former() -> None:
    def define() -> type[Message]:
        @message("example.redefined")
        @dataclass(frozen=True, slots=True)
        class Redefined(Message):
            stamp: Stamp

        return Redefined

    define()
    second = define()
    assert message_class("example.redefined") is second


@pytest.mark.parametrize("kind", ["", "Upper", "a..b", ".a", "a_b", "ä", "a" * 65])
def test_a_kind_is_a_short_ascii_name(kind: str) -> None:
    with pytest.raises(LocalProtocolError, match="message kind"):
        message(kind)


class Unsupported:
    pass


@pytest.mark.parametrize(
    "annotation",
    [
        Unsupported,
        dict[str, int],
        list[int],
        tuple[int, int],
        Mapping[str, int],
        int | str,
        Annotated[int, Length(3)],
        Annotated[bytes, AtMost(3)],
        Annotated[float, MaxLength(3)],
        Annotated[bytes, Length(3), MaxLength(4)],
        Annotated[bytes, "a remark"],
        Annotated[Share, MaxLength(3)],
        Annotated[PartyId, MaxLength(3)],
        Annotated[tuple[int, ...], AtMost(3)],
        RoundKeys,
    ],
    ids=str,
)
def test_a_field_that_cannot_travel_is_refused_when_the_class_is_registered(annotation: Any) -> None:
    made = dataclasses.make_dataclass("Made", [("field", annotation)], frozen=True)
    with pytest.raises(LocalProtocolError, match=r"Made\.field"):
        record(made)


def test_only_frozen_dataclasses_are_registered() -> None:
    with pytest.raises(LocalProtocolError, match="frozen=True"):
        record(dataclasses.make_dataclass("Thawed", [("field", int)]))
    with pytest.raises(LocalProtocolError, match="frozen=True"):
        record(Unsupported)
    with refusal(LocalProtocolError, "Share", "derive", "Message"):
        message("example.stray")(Share)  # type: ignore[type-var]  # that is the point
    with pytest.raises(LocalProtocolError, match="init=False"):
        record(
            dataclasses.make_dataclass("Half", [("field", int, dataclasses.field(init=False))], frozen=True)
        )


def test_a_field_type_that_cannot_be_resolved_is_named() -> None:
    with pytest.raises(LocalProtocolError, match="Nowhere"):
        record(dataclasses.make_dataclass("Made", [("field", "Nowhere")], frozen=True))


def test_a_new_type_travels_as_what_it_is_made_of() -> None:
    made = record(dataclasses.make_dataclass("Named", [("session", SessionId)], frozen=True))
    assert made(bytes(32)).session == bytes(32)
    with refusal(InvalidField, "Named.session", "bytes", "str"):
        made("text")


def test_a_tensor_alias_and_a_plain_ndarray_mean_the_same() -> None:
    made = record(dataclasses.make_dataclass("Plain", [("one", np.ndarray), ("two", Tensor)], frozen=True))
    assert made(np.zeros(1), np.zeros(1)) == made(np.zeros(1), np.zeros(1))
