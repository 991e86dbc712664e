"""Opening a session: who is there, with which keys, from which round on.

    participant -> server   Knock           "I am here" (any time; the server may answer much later)
    server -> everyone      Invitation      a fresh nonce; everything before it is over
    participant -> server   Hello           a signed nonce, a box key for this session, rounds done so far
    server -> participants  SessionOpened   all hellos, unchanged; or who is there, and the hellos that one needs

The session id hashes the roster, the configuration, the position and every hello. A participant finds its own hello in
the list, checks the others against the roster, and computes the id itself; so parties that share a session id agree on
all of that, and a replayed message of an earlier session belongs nowhere. A change of membership opens a new session:
the peers of AMPC exchange new seeds, of which departed peers derive nothing.

All hellos for everyone grow with the square of the parties. Where a server that follows the protocol tells clients
about their neighbours only, a session is therefore opened with one bit for each participant and the hellos that a
member needs by then; those of its neighbours come when these are drawn, and the id is the server's word.

Implements specs/protocol.md, section 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated

from veilsum.protocol.agreed.listing import OneBitEach, listed, read_listed, require_one_form
from veilsum.protocol.agreed.parameters import Parameters
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.agreed.threat import Threat
from veilsum.protocol.chain.hellos import (
    NONCE_BYTES,
    HelloRecord,
    hello_parts,
    require_small,
    statements_among,
    voters_among,
)
from veilsum.protocol.chain.position import PositionStatement
from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.chain.state import hash_model
from veilsum.protocol.chain.statements import EnteredAttempt, require_sound, require_vouched
from veilsum.protocol.chain.votes import Certificate, SupportedBallot, Vote
from veilsum.protocol.crypto.agreement import AgreementKey, require_agreement_key, require_distinct_keys
from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId, SessionId
from veilsum.protocol.randomness import RandomBytes, require_random
from veilsum.protocol.wire.messages import Length, MaxLength, Message, Stamp, Tensor, message

HELLO_DOMAIN = "hello"


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
    """A hello; where parties keep a chain, also what proves their position, and their vote on the next one."""

    stamp: Stamp
    invitation: Annotated[bytes, Length(NONCE_BYTES)]
    hello: HelloRecord
    certificate: Certificate | None = None
    vote: Vote | None = None


@message("session.opened")
@dataclass(frozen=True, slots=True)
class SessionOpened(Message):
    """All hellos; `certificate` proves the position that the session begins at, where parties keep a chain.

    Where these are some hellos only, `present` has a bit for each participant of the roster, by name, the first one
    lowest: whether it is a member. `supported`: nobody uploads in this session, a result that was verified by others is
    passed on.
    """

    stamp: Stamp
    hellos: Mapping[PartyId, HelloRecord]
    certificate: Certificate | None = None
    present: OneBitEach = b""
    supported: SupportedBallot | None = None


@message("round.opened")
@dataclass(frozen=True, slots=True)
class RoundOpened(Message):
    """`model` is empty where the participants hold the model themselves, but for one that is behind on a chain.

    That one is given the memory of the step and the hash of the state before, too.
    """

    stamp: Stamp
    model: Tensor
    memory: Tensor | None = None
    before: Annotated[bytes, Length(32, or_empty=True)] = b""


@message("round.closed")
@dataclass(frozen=True, slots=True)
class RoundClosed(Message):
    """The round's outcome where the server holds the model: who is in it, and the hash of the next model.

    Who is in it stands in `members` or, with a bit for each participant of the roster, in `present`.
    """

    stamp: Stamp
    committed: bool
    members: tuple[PartyId, ...]
    next_model_hash: Annotated[bytes, Length(32, or_empty=True)]
    reason: Annotated[str, MaxLength(512)] = ""
    certificate: Certificate | None = None
    present: OneBitEach = b""

    def require_consistent(self) -> None:
        """Refuse members that are told in two forms."""
        require_one_form(self.members, self.present)


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
    memory: Tensor | None = None
    before: Annotated[bytes, Length(32, or_empty=True)] = b""
    certificate: Certificate | None = None


@dataclass(frozen=True)
class Session:
    """One opened session, as everyone in it sees it: its members by name, and those of their hellos that are known."""

    id: SessionId
    members: tuple[PartyId, ...]
    hellos: Mapping[PartyId, HelloRecord]
    terms: SessionTerms = field(repr=False)
    certificate: Certificate | None = field(default=None, repr=False)
    """What proves the position that the session begins at, beyond the anchor of a chain."""
    supported: SupportedBallot | None = field(default=None, repr=False)
    """The result that the session is there to pass on, without an upload; None in all other sessions."""
    shown: Mapping[PartyId, Collection[PartyId]] = field(default_factory=dict, repr=False)
    """Whose hellos alone a member is shown by the server, of members that are not shown all."""
    _verified: set[tuple[PartyId, bytes]] = field(default_factory=set, repr=False)

    @cached_property
    def _names(self) -> frozenset[PartyId]:
        return frozenset(self.members)

    def openings(self, stamp: Stamp) -> Iterator[tuple[PartyId, SessionOpened]]:
        """What the server tells each member as the session opens."""
        whole = SessionOpened(stamp, self.hellos, self.certificate, supported=self.supported)
        part = replace(whole, present=self.terms.roster.packed(self._names)) if self.shown else whole
        for name in self.members:
            hellos = {one: self.hellos[one] for one in self.shown.get(name, ())}
            yield name, replace(part, hellos=hellos) if name in self.shown else whole

    def unshown(self, name: PartyId, others: Iterable[PartyId]) -> dict[PartyId, HelloRecord]:
        """The hellos of these that the server did not show a member as the session opened."""
        known = self.shown.get(name, self.members)
        return {other: self.hellos[other] for other in others if other not in known}

    def introduced(self, hellos: Mapping[PartyId, HelloRecord]) -> Session:
        """The same session with hellos that were not shown before; none of them changes one that was."""
        for name, hello in hellos.items():
            if self.hellos.get(self.require_member(name), hello) != hello:
                raise Rejection(AbortReason.EQUIVOCATION, f"the hello of {name} was another one before")
        known = {**self.hellos, **hellos}
        require_distinct_keys({name: hello.box_key for name, hello in known.items()})
        return replace(self, hellos=known)

    @property
    def positions(self) -> dict[PartyId, int]:
        """How many rounds each member says it has done."""
        return {name: hello.rounds_done for name, hello in self.hellos.items()}

    def voters(self, position: int) -> frozenset[PartyId]:
        """Members that say they have a vote there, if they are of its electorate."""
        return voters_among(self.hellos, position)

    def statements(self, position: int) -> dict[PartyId, PositionStatement]:
        """What the members say they did at a position before."""
        return statements_among(self.hellos, position, self.terms.parameters.recovery)

    def require_member(self, name: str) -> PartyId:
        """The name, if it is one of a member."""
        if name not in self._names:
            raise Rejection(AbortReason.UNKNOWN_PARTY, f"{name} is not in this session")
        return PartyId(name)

    def box_key_of(self, name: PartyId) -> bytes:
        """The session key of a member, after its signature was verified once."""
        hello = self.hellos.get(self.require_member(name))
        if hello is None:
            raise Rejection(AbortReason.BAD_KEY, f"the server did not show the hello of {name}")
        if (name, hello.box_key) not in self._verified:
            self.terms.verify_hello(name, hello)
            self._verified.add((name, hello.box_key))
        return hello.box_key


@dataclass(frozen=True)
class SessionTerms:
    """What a hello is bound to besides its own content."""

    roster: Roster
    parameters: Parameters
    invitation: bytes

    def hello_digest(self, name: PartyId, hello: HelloRecord) -> bytes:
        """What a hello signs: all that it says, and what it is bound to."""
        framed = length_prefixed(
            domain_tag("hello"),
            self.roster.digest,
            self.parameters.config_hash,
            self.invitation,
            name.encode(),
            *hello_parts(hello),
        )
        return hashlib.sha256(framed).digest()

    def new_hello(
        self,
        me: Identity,
        box_key: AgreementKey,
        rounds_done: int,
        random: RandomBytes,
        attempts: tuple[EnteredAttempt, ...] = (),
        *,
        fresh: bool = False,
    ) -> HelloRecord:
        nonce = require_random(random, NONCE_BYTES)
        unsigned = HelloRecord(nonce, box_key.public, rounds_done, bytes(64), fresh, attempts)
        signature = me.signing.sign(HELLO_DOMAIN, self.hello_digest(me.name, unsigned))
        return replace(unsigned, signature=signature)

    def verify_hello(self, name: PartyId, hello: HelloRecord) -> None:
        self.roster.require_participant(name)
        require_agreement_key(hello.box_key)
        require_small(hello, len(self.roster.participants))
        require_sound(name, hello.attempts)
        self.roster.verify(name, HELLO_DOMAIN, self.hello_digest(name, hello), hello.signature)
        require_vouched(self.roster, hello.rounds_done, hello.attempts)

    def open(self, hellos: Mapping[PartyId, HelloRecord], position: int) -> Session:
        """The session of these hellos, sorted by name, at this position; both sides compute it."""
        require_distinct_keys({name: hello.box_key for name, hello in hellos.items()})
        ordered = dict(sorted(hellos.items()))
        parts = [part for name, hello in ordered.items() for part in (name.encode(), *hello_parts(hello))]
        framed = length_prefixed(
            domain_tag("session"),
            self.roster.digest,
            self.parameters.config_hash,
            self.invitation,
            position.to_bytes(8, "big"),
            *parts,
        )
        return Session(SessionId(hashlib.sha256(framed).digest()), tuple(ordered), ordered, self)

    def accept(self, me: PartyId, mine: HelloRecord, opened: SessionOpened) -> Session:
        """A participant's checks on the list the server sent.

        Against a server that may lie every signature is verified here; a semi-honest one has verified them itself, and
        a participant verifies those it exchanges anything with, when it first does.
        """
        hellos = opened.hellos
        self._require_sound(me, mine, hellos, len(hellos))
        for name in hellos:
            self.roster.require_participant(name)
        session = self.open(hellos, opened.stamp.round)
        if self.parameters.threat is Threat.LYING:
            for name in hellos:
                session.box_key_of(name)
        return session

    def shortened(self, closed: RoundClosed) -> RoundClosed:
        """A closing word as it travels."""
        if not closed.committed:
            return closed
        members, present = listed(self.roster, self.parameters, closed.members)
        return replace(closed, members=members, present=present)

    def spelled_out(self, message: Message) -> Message:
        """A closing word with the names of those in the sum; any other message as it is."""
        if not isinstance(message, RoundClosed) or not message.committed:
            return message
        names = read_listed(self.roster, self.parameters, message.members, message.present)
        return replace(message, members=names, present=b"")

    def accept_part(self, me: PartyId, mine: HelloRecord, opened: SessionOpened) -> Session:
        """The checks on a session of which the server shows some hellos: the rest, and the id, are its word."""
        if not self.parameters.lists_neighbourhoods:
            raise Rejection(AbortReason.WRONG_SESSION, "some hellos are left out, and all were agreed on")
        members = self.roster.unpacked(opened.present)
        self._require_sound(me, mine, opened.hellos, len(members))
        return Session(SessionId(opened.stamp.session), members, {}, self).introduced(opened.hellos)

    def _require_sound(
        self, me: PartyId, mine: HelloRecord, hellos: Mapping[PartyId, HelloRecord], members: int
    ) -> None:
        if hellos.get(me) != mine:
            raise Rejection(AbortReason.WRONG_SESSION, f"the hello of {me} is missing or was changed")
        if members < self.parameters.min_parties:
            raise Rejection(
                AbortReason.COHORT_TOO_SMALL,
                f"{members} parties, the agreed minimum is {self.parameters.min_parties}",
            )


@dataclass(frozen=True)
class Greeting:
    """A participant's answer to one invitation, and the keys that go with it."""

    terms: SessionTerms
    me: PartyId
    box_key: AgreementKey = field(repr=False)
    hello: HelloRecord
    certificate: Certificate | None = None
    vote: Vote | None = None

    @classmethod
    def answer(
        cls,
        terms: SessionTerms,
        me: Identity,
        rounds_done: int,
        random: RandomBytes,
        chain: ChainRecord | None = None,
        attempts: tuple[EnteredAttempt, ...] = (),
    ) -> Greeting:
        box_key = AgreementKey.generate(random)
        if chain is None:
            return cls(terms, me.name, box_key, terms.new_hello(me, box_key, rounds_done, random))
        fresh = not chain.votes_here
        hello = terms.new_hello(me, box_key, rounds_done, random, attempts, fresh=fresh)
        return cls(terms, me.name, box_key, hello, chain.certificate, chain.vote)

    @property
    def message(self) -> Hello:
        return Hello(Stamp(), self.terms.invitation, self.hello, self.certificate, self.vote)

    def accept(self, opened: SessionOpened) -> Session:
        if opened.present:
            session = self.terms.accept_part(self.me, self.hello, opened)
        else:
            session = self.terms.accept(self.me, self.hello, opened)
        if opened.stamp.session != session.id:
            raise Rejection(
                AbortReason.WRONG_SESSION, "the session id does not follow from hellos and position"
            )
        return replace(session, certificate=opened.certificate, supported=opened.supported)


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
