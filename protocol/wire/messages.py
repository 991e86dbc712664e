"""Messages: frozen dataclasses that cannot be built invalid, found by kind.

    @message("masked.round-keys")
    @dataclass(frozen=True, slots=True)
    class RoundKeys(Message):
        stamp: Stamp
        key: Annotated[bytes, Length(32)]
        signature: Annotated[bytes, Length(64)]

The decorator compiles the annotations into a schema and checks every new instance against it, whether our own
caller builds it or the wire decoder; so any message that exists is valid. A scheme outside this package
defines its messages in the same way. Field types:

    int (0 to 2^48 - 1), float (finite), bool, str, bytes, PartyId, Tensor (one contiguous dimension),
    tuple[T, ...], Mapping[PartyId, T], T | None, and classes registered with @record

with bounds as `Annotated[bytes, Length(32)]`, `MaxLength(n)` or, for integers, `AtMost(n)`. A rule that needs
several fields goes into a method `require_consistent(self)` that raises ValueError.

Arrays become read-only views when they enter a message: the sender must not write to the base array before
the message is encoded. The repr shows sizes, never bytes or numbers: messages carry seeds and updates.

Implements specs/wire-format.md, section 4.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Final, TypeVar

from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.crypto.kdf import KeyContext
from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.wire.defects import InvalidField, WireDefect, WireError
from veilsum.protocol.wire.fields import Tensor
from veilsum.protocol.wire.records import install_rules, record
from veilsum.protocol.wire.schema import AtMost, Length, MaxLength, Schema, compile_schema

__all__ = [
    "AtMost",
    "InvalidField",
    "Length",
    "MaxLength",
    "Message",
    "Stamp",
    "Tensor",
    "is_name",
    "kind_of",
    "message",
    "message_class",
    "message_schema",
    "record",
    "registered_messages",
]

HASH_BYTES: Final = 32
MAX_NAME_BYTES: Final = 64

_NAME = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")

M = TypeVar("M", bound="Message")


@record
@dataclass(frozen=True, slots=True)
class Stamp:
    """What a message belongs to. It travels in the envelope header, so it is never encoded twice."""

    session: Annotated[bytes, Length(HASH_BYTES, or_empty=True)] = b""
    round: int = 0
    attempt: int = 0
    model_hash: Annotated[bytes, Length(HASH_BYTES, or_empty=True)] = b""

    def key_context(self, sender: str, receiver: str = "", term: str = "") -> KeyContext:
        """What binds a key to all that this stamp says (specs/keys.md)."""
        return KeyContext(
            self.session, self.round, self.attempt, sender, receiver, term, model_hash=self.model_hash
        )

    def without_model(self) -> Stamp:
        """The same attempt, whatever the model is."""
        return Stamp(self.session, self.round, self.attempt)

    def digest(self, domain: str, *parts: bytes) -> bytes:
        """SHA-256 over the parts, framed with the attempt that they belong to."""
        counters = (self.round.to_bytes(8, "big"), self.attempt.to_bytes(8, "big"))
        framed = length_prefixed(domain_tag(domain), self.session, *counters, *parts)
        return hashlib.sha256(framed).digest()


@dataclass(frozen=True, slots=True)
class Message:
    """Base of everything that travels; one that `states_result` tells others of a result, once that is decided."""

    states_result = False

    stamp: Stamp


_classes: dict[str, type[Message]] = {}
_kinds: dict[type[Message], str] = {}
_schemas: dict[type[Message], Schema] = {}


def message(kind: str) -> Callable[[type[M]], type[M]]:
    """Register a frozen dataclass derived from Message under a kind such as "masked.round-keys"."""
    if not is_name(kind):
        raise LocalProtocolError(f"message kind {kind!r} is not words of a-z, 0-9 joined by '.' or '-'")

    def register(cls: type[M]) -> type[M]:
        if not issubclass(cls, Message):
            raise LocalProtocolError(f"{cls.__qualname__} must derive from Message")
        known = _classes.get(kind)
        if known is not None and _identity(known) != _identity(cls):
            raise LocalProtocolError(f"message kind {kind!r} belongs to {known.__qualname__} already")
        schema = compile_schema(cls)
        install_rules(cls, schema)
        _classes[kind], _kinds[cls], _schemas[cls] = cls, kind, schema
        return cls

    return register


def _identity(cls: type) -> tuple[str, str]:
    """A class defined again in the same place (a module reloaded, a notebook cell) replaces the old one."""
    return cls.__module__, cls.__qualname__


def is_name(text: str) -> bool:
    """Whether a text can name a kind of message, or a phase, on the wire."""
    return len(text) <= MAX_NAME_BYTES and _NAME.fullmatch(text) is not None


def message_class(kind: str) -> type[Message]:
    """The class of a kind that was read from the wire; an unknown kind is a defect of what was read."""
    try:
        return _classes[kind]
    except KeyError:
        raise WireError(WireDefect.UNKNOWN_KIND, repr(kind)) from None


def kind_of(message_or_class: Message | type[Message]) -> str:
    """The name on the wire of a message, or of a class of messages, that is registered."""
    cls = message_or_class if isinstance(message_or_class, type) else type(message_or_class)
    try:
        return _kinds[cls]
    except KeyError:
        raise LocalProtocolError(f"{cls.__qualname__} is not registered: decorate it with @message") from None


def message_schema(cls: type[Message]) -> Schema:
    """How the fields of a registered class of messages are encoded and checked."""
    kind_of(cls)
    return _schemas[cls]


def registered_messages() -> Mapping[str, type[Message]]:
    """Every class of messages by its kind, as far as their modules are imported; it cannot be changed."""
    return MappingProxyType(_classes)
