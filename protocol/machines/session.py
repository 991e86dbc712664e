"""Opening a session: who is there, with which keys, from which round on.

    participant -> server   Knock           "I am here" (any time; the server may answer much later)
    server -> everyone      Invitation      a fresh nonce; everything before it is over
    participant -> server   Hello           a signed nonce, a box key for this session, rounds done so far
    server -> participants  SessionOpened   all hellos, unchanged

The session id hashes the roster, the configuration and every hello. A participant finds its own hello in
the list, checks the others against the roster, and computes the id itself; so parties that share a session
id agree on all of that, and a replayed message of an earlier session belongs nowhere. A change of
membership opens a new session: the peers of AMPC exchange new seeds, and departed peers cannot derive
anything in it.

Implements specs/protocol.md, section 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from veilsum.protocol.agreed.parameters import Parameters
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.agreed.threat import Threat
from veilsum.protocol.crypto.agreement import AgreementKey, require_agreement_key, require_distinct_keys
from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId, SessionId
from veilsum.protocol.randomness import RandomBytes, require_random
from veilsum.protocol.wire.messages import Length, MaxLength, Message, Stamp, Tensor, message, record

NONCE_BYTES = 32
HELLO_DOMAIN = "hello"


@record
@dataclass(frozen=True, slots=True)
class HelloRecord:
    nonce: Annotated[bytes, Length(NONCE_BYTES)]
    box_key: Annotated[bytes, Length(32)]
    rounds_done: int
    signature: Annotated[bytes, Length(64)]


@message("session.knock")
@dataclass(frozen=True, slots=True)
class Knock(Message):
    stamp: Stamp


@message("session.invitation")
@dataclass(frozen=True, slots=True)
class Invitation(Message):
    stamp: Stamp
    nonce: Annotated[bytes, Length(NONCE_BYTES)]


@message("session.hello")
@dataclass(frozen=True, slots=True)
class Hello(Message):
    stamp: Stamp
    invitation: Annotated[bytes, Length(NONCE_BYTES)]
    hello: HelloRecord


@message("session.opened")
@dataclass(frozen=True, slots=True)
class SessionOpened(Message):
    stamp: Stamp
    hellos: Mapping[PartyId, HelloRecord]


@message("round.opened")
@dataclass(frozen=True, slots=True)
class RoundOpened(Message):
    """`model` is empty where the participants hold the model themselves."""

    stamp: Stamp
    model: Tensor


@message("round.closed")
@dataclass(frozen=True, slots=True)
class RoundClosed(Message):
    """The round's outcome where the server holds the model: who is in it, and the hash of the next model."""

    stamp: Stamp
    committed: bool
    members: tuple[PartyId, ...]
    next_model_hash: Annotated[bytes, Length(32, or_empty=True)]
    reason: Annotated[str, MaxLength(512)] = ""


@message("round.withdrawn")
@dataclass(frozen=True, slots=True)
class Withdrawn(Message):
    """A participant leaves this attempt and says why; the server need not wait for it."""

    stamp: Stamp
    reason: Annotated[str, MaxLength(512)]


@message("session.farewell")
@dataclass(frozen=True, slots=True)
class Farewell(Message):
    """The run is over; `model` is the final one where the server holds it."""

    stamp: Stamp
    completed: bool
    reason: Annotated[str, MaxLength(512)]
    detail: Annotated[str, MaxLength(1024)]
    model: Tensor


@dataclass(frozen=True)
class Session:
    """One opened session, as everyone in it sees it."""

    id: SessionId
    hellos: Mapping[PartyId, HelloRecord]
    terms: SessionTerms = field(repr=False)
    _verified: set[PartyId] = field(default_factory=set, repr=False)

    @property
    def members(self) -> tuple[PartyId, ...]:
        return tuple(self.hellos)

    def require_member(self, name: str) -> PartyId:
        if name not in self.hellos:
            raise Rejection(AbortReason.UNKNOWN_PARTY, f"{name} is not in this session")
        return PartyId(name)

    def box_key_of(self, name: PartyId) -> bytes:
        """The session key of a member, after its signature was verified once."""
        hello = self.hellos[self.require_member(name)]
        if name not in self._verified:
            self.terms.verify_hello(name, hello)
            self._verified.add(name)
        return hello.box_key


@dataclass(frozen=True)
class SessionTerms:
    """What a hello is bound to besides its own content."""

    roster: Roster
    parameters: Parameters
    invitation: bytes

    def hello_digest(self, name: PartyId, nonce: bytes, box_key: bytes, rounds_done: int) -> bytes:
        framed = length_prefixed(
            domain_tag("hello"),
            self.roster.digest,
            self.parameters.config_hash,
            self.invitation,
            name.encode(),
            nonce,
            box_key,
            rounds_done.to_bytes(8, "big"),
        )
        return hashlib.sha256(framed).digest()

    def new_hello(
        self, me: Identity, box_key: AgreementKey, rounds_done: int, random: RandomBytes
    ) -> HelloRecord:
        nonce = require_random(random, NONCE_BYTES)
        digest = self.hello_digest(me.name, nonce, box_key.public, rounds_done)
        return HelloRecord(nonce, box_key.public, rounds_done, me.signing.sign(HELLO_DOMAIN, digest))

    def verify_hello(self, name: PartyId, hello: HelloRecord) -> None:
        self.roster.require_participant(name)
        require_agreement_key(hello.box_key)
        digest = self.hello_digest(name, hello.nonce, hello.box_key, hello.rounds_done)
        self.roster.verify(name, HELLO_DOMAIN, digest, hello.signature)

    def open(self, hellos: Mapping[PartyId, HelloRecord]) -> Session:
        """The session of these hellos, sorted by name; both sides compute it."""
        require_distinct_keys({name: hello.box_key for name, hello in hellos.items()})
        ordered = dict(sorted(hellos.items()))
        parts = [
            part
            for name, hello in ordered.items()
            for part in (name.encode(), hello.nonce, hello.box_key, hello.rounds_done.to_bytes(8, "big"))
        ]
        framed = length_prefixed(
            domain_tag("session"), self.roster.digest, self.parameters.config_hash, self.invitation, *parts
        )
        return Session(SessionId(hashlib.sha256(framed).digest()), ordered, self)

    def accept(self, me: PartyId, mine: HelloRecord, hellos: Mapping[PartyId, HelloRecord]) -> Session:
        """A participant's checks on the list the server sent.

        Against a server that may lie every signature is verified here. A semi-honest server has verified them
        itself; then a participant verifies those it exchanges anything with, when it first does.
        """
        if hellos.get(me) != mine:
            raise Rejection(AbortReason.WRONG_SESSION, f"the hello of {me} is missing or was changed")
        if len(hellos) < self.parameters.min_parties:
            raise Rejection(
                AbortReason.COHORT_TOO_SMALL,
                f"{len(hellos)} parties, the agreed minimum is {self.parameters.min_parties}",
            )
        for name in hellos:
            self.roster.require_participant(name)
        session = self.open(hellos)
        if self.parameters.threat is Threat.LYING:
            for name in hellos:
                session.box_key_of(name)
        return session


@dataclass(frozen=True)
class Greeting:
    """A participant's answer to one invitation, and the keys that go with it."""

    terms: SessionTerms
    me: PartyId
    box_key: AgreementKey = field(repr=False)
    hello: HelloRecord

    @classmethod
    def answer(cls, terms: SessionTerms, me: Identity, rounds_done: int, random: RandomBytes) -> Greeting:
        box_key = AgreementKey.generate(random)
        return cls(terms, me.name, box_key, terms.new_hello(me, box_key, rounds_done, random))

    @property
    def message(self) -> Hello:
        return Hello(Stamp(), self.terms.invitation, self.hello)

    def accept(self, opened: SessionOpened) -> Session:
        session = self.terms.accept(self.me, self.hello, opened.hellos)
        if opened.stamp.session != session.id:
            raise Rejection(AbortReason.WRONG_SESSION, "the session id does not follow from the hellos")
        return session


def hash_model(model: Tensor) -> bytes:
    """SHA-256 over a model's bytes, behind a tag and its length."""
    digest = hashlib.sha256(length_prefixed(domain_tag("model")) + len(model).to_bytes(8, "big"))
    digest.update(model.data.cast("B") if len(model) else b"")
    return digest.digest()


def require_no_model(opened: RoundOpened) -> None:
    """Where participants hold the model, the server neither sends one nor says which it is."""
    if len(opened.model) or opened.stamp.model_hash:
        raise Rejection(AbortReason.WRONG_MODEL, "the server does not hold the model in this scheme")


def require_model_shape(model: Tensor, dimension: int) -> None:
    if model.dtype.str != "<f4" or len(model) != dimension:
        raise Rejection(
            AbortReason.BAD_VECTOR,
            f"a model has {dimension} float32 numbers, got {len(model)} of type {model.dtype.str}",
        )


def require_model(opened: RoundOpened, dimension: int) -> None:
    """Refuse a round whose model has another shape or another hash than announced."""
    require_model_shape(opened.model, dimension)
    if opened.stamp.model_hash != hash_model(opened.model):
        raise Rejection(AbortReason.WRONG_MODEL, "the model does not have the announced hash")
