"""What one adversary of a run saw and knows. An attack gets a view and nothing else.

The textbook view of a party is its input, its coins and the messages it received. Here that is: the messages it sent
and received, decoded; the results it computed; its own data, updates and secrets (a peer's seeds of a session, the
perturbation keys of a server that perturbs the model); and what everybody knows: the agreed settings, the architecture
and the first model, which is made from the agreed seed. A coalition has all of that of each member. The
broker has no key: of each message it knows sender, receiver, kind, size and time.

A view errs on the adversary's side: a message that the network lost on its way to a party is in the party's view.

Rejected: handing attacks "the gradient". Most published claims about protection and its failure are about which
gradient a party can form at all, and that is what a view settles.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.schemes.registry import find_scheme
from veilsum.protocol.wire.codec import encode_message
from veilsum.protocol.wire.messages import Message
from veilsum.roles.learning.task import Samples

BROKER = "broker"
Reals: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Observed:
    """One message on its way; `message` is None for who cannot open it."""

    time_s: float
    sender: str
    receiver: str
    kind: str
    size: int
    message: Message | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Result:
    """What a party computed at the end of a round: the model and the opened sum, where it may see them."""

    party: str
    round: int
    attempt: int
    members: tuple[str, ...]
    model: Model | None = field(default=None, repr=False)
    total: RingVector | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class OwnUpdate:
    party: str
    round: int
    samples: int
    payload: Model = field(repr=False)


@dataclass(frozen=True, eq=False)
class SessionKeys:
    """A participant's secrets of one session: kind -> whose or shared with whom -> seed.

    A peer that exchanges shares has seeds of those given and taken, and everyone's bias seeds where there are biases.
    """

    party: str
    session: bytes
    seeds: Mapping[str, Mapping[str, Secret]] = field(repr=False)

    @classmethod
    def of(cls, party: str, session: bytes, secrets: TellsSeeds) -> SessionKeys:
        told = secrets.tell_seeds().items()
        return cls(
            party, session, {kind: {str(name): one for name, one in each.items()} for kind, each in told}
        )

    @property
    def taken(self) -> Mapping[str, Secret]:
        return self.seeds.get("taken", {})

    @property
    def biases(self) -> Mapping[str, Secret]:
        return self.seeds.get("biases", {})


@runtime_checkable
class TellsSeeds(Protocol):
    """The secrets of a session, of whatever scheme, that tell their seeds to whoever records the party's own view."""

    def tell_seeds(self) -> Mapping[str, Mapping[PartyId, Secret]]:
        """Kind -> whose seed, or shared with whom -> seed."""


@dataclass(frozen=True, eq=False)
class PerturbationSecrets:
    """What a server drew to perturb the model of one attempt; the names are those of
    protocol/perturbation/algebra/key.py."""

    key_id: bytes
    scale: Reals = field(repr=False)
    gammas: Reals = field(repr=False)
    blinders: Reals = field(repr=False)
    shifts: Reals = field(repr=False)
    loss_shift: float = field(repr=False)


@runtime_checkable
class TellsSecrets(Protocol):
    """A server's equipment that tells what it draws to whoever records the server's own view."""

    on_secrets: Callable[[PerturbationSecrets], None]


@dataclass(frozen=True)
class PublicFacts:
    """What everybody knows: the agreed settings as plain values, and the shape of what is learned."""

    settings: Mapping[str, Any]
    dimension: int
    input_shape: tuple[int, ...]
    outputs: int

    @property
    def scheme(self) -> str:
        return str(self.settings["scheme"])

    @property
    def defence(self) -> str:
        return str(self.settings.get("defence") or "none")

    @property
    def parties(self) -> tuple[str, ...]:
        return tuple(self.settings["parties"])


@dataclass(frozen=True, eq=False, repr=False)
class View:
    members: tuple[str, ...]
    """The parties that pool what they know; nobody for the broker."""
    facts: PublicFacts
    initial_model: Model
    messages: tuple[Observed, ...]
    results: tuple[Result, ...] = ()
    own_updates: tuple[OwnUpdate, ...] = ()
    own_data: Mapping[str, Samples] = field(default_factory=dict)
    session_keys: tuple[SessionKeys, ...] = ()
    perturbation_secrets: tuple[PerturbationSecrets, ...] = ()

    @property
    def adversary(self) -> str:
        return "+".join(self.members) if self.members else BROKER

    @property
    def rounds(self) -> tuple[int, ...]:
        seen = {one.round for one in self.results}
        seen |= {
            one.message.stamp.round
            for one in self.messages
            if one.message is not None and not one.kind.startswith("session.")
        }
        return tuple(sorted(seen))

    def received(self, kind: type[Message], round_: int | None = None) -> Iterator[tuple[str, Any]]:
        """Sender and message of every message of this kind that came to a member."""
        return ((one.sender, one.message) for one in self._of(kind, round_) if one.receiver in self.members)

    def sent(self, kind: type[Message], round_: int | None = None) -> Iterator[tuple[str, Any]]:
        """Receiver and message of every message of this kind that a member sent."""
        return ((one.receiver, one.message) for one in self._of(kind, round_) if one.sender in self.members)

    def _of(self, kind: type[Message], round_: int | None) -> Iterator[Observed]:
        """The opened messages of this kind, of one round if one is named."""
        for one in self.messages:
            message = one.message
            if isinstance(message, kind) and (round_ is None or message.stamp.round == round_):
                yield one

    def __repr__(self) -> str:
        return threat_model(self)


def pool(views: Sequence[View]) -> View:
    """The view of a coalition: everything that any member has."""
    if not views or any(not view.members for view in views):
        raise LocalProtocolError("a coalition needs parties; the broker has nothing that its members lack")
    members = tuple(dict.fromkeys(name for view in views for name in view.members))
    if len(members) != sum(len(view.members) for view in views):
        raise LocalProtocolError(f"a party can join a coalition once: {', '.join(members)}")
    first = views[0]
    if any(view.facts != first.facts for view in views):
        raise LocalProtocolError("a coalition is of one run: these views are of several")
    messages: dict[object, Observed] = {}
    for view in views:
        for key, one in _numbered(view.messages):
            messages.setdefault(key, one)
    return View(
        members=members,
        facts=first.facts,
        initial_model=first.initial_model,
        messages=tuple(sorted(messages.values(), key=lambda one: one.time_s)),
        results=tuple(one for view in views for one in view.results),
        own_updates=tuple(one for view in views for one in view.own_updates),
        own_data={name: data for view in views for name, data in view.own_data.items()},
        session_keys=tuple(one for view in views for one in view.session_keys),
        perturbation_secrets=tuple(one for view in views for one in view.perturbation_secrets),
    )


def _numbered(messages: Sequence[Observed]) -> Iterator[tuple[object, Observed]]:
    """Each message with what it has in common in the views of its sender and of its receiver.

    The same message sent twice counts twice, so the key has a number too.
    """
    times: Counter[object] = Counter()
    for one in messages:
        what: tuple[object, ...] = (one.sender, one.receiver, one.kind)
        if one.message is not None:
            content = hashlib.sha256(b"".join(encode_message(one.message))).digest()
            what = (*what, *astuple(one.message.stamp), content)
        times[what] += 1
        yield (what, times[what]), one


def threat_model(view: View) -> str:
    """Who the adversary is, what it may learn by design, and what it has, in words."""
    facts = view.facts
    scheme = find_scheme(facts.scheme)
    lines = [
        f"View of {view.adversary} under {facts.scheme}, {len(facts.parties)} parties, defence {facts.defence}.",
        f"It is {_behaviour(view)}, and everyone is authenticated.",
    ]
    lines += [f"By design a {role} learns {scheme.learns[role]}." for role in _roles(view, scheme.learns)]
    lines += [f"It has {item}." for item in _inventory(view)]
    lines.append("It has no data, coins or keys of any other party.")
    return "\n".join(lines)


def _behaviour(view: View) -> str:
    if not view.members:
        return "curious and holds no key: it sees who sends how much to whom, and when"
    return "curious: follows the protocol and keeps all it sees"


def _roles(view: View, learns: Mapping[str, str]) -> list[str]:
    if not view.members:
        return [role for role in learns if role == BROKER]
    present: set[str] = {SERVER} if SERVER in view.members else set()
    if any(name != SERVER for name in view.members):
        present |= {role for role in learns if role not in (SERVER, BROKER)}
    return [role for role in learns if role in present]


def _inventory(view: View) -> Iterator[str]:
    yield "the agreed settings, the architecture and the first model, which are public"
    if not view.members:
        total = sum(one.size for one in view.messages)
        yield f"the envelopes of {len(view.messages)} messages, {total} bytes in all, sealed and signed"
        return
    counts = Counter(one.kind for one in view.messages if one.receiver in view.members)
    words = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    yield f"{sum(counts.values())} messages received, opened: {words}"
    models = sum(one.model is not None for one in view.results)
    sums = sum(one.total is not None for one in view.results)
    if models or sums:
        yield f"{models} models and {sums} opened sums it computed itself"
    for name, data in view.own_data.items():
        yield f"the {len(data)} samples of {name}"
    for keys in view.session_keys:
        yield f"{keys.party}'s seeds of a session: {_seed_counts(keys)}"
    if view.perturbation_secrets:
        yield f"the server's perturbation keys of {len(view.perturbation_secrets)} attempts"


def _seed_counts(keys: SessionKeys) -> str:
    known = {"taken": "shares taken"}
    told = {kind: len(seeds) for kind, seeds in keys.seeds.items() if kind != "given"}
    return ", ".join(f"{count} {known.get(kind, kind)}" for kind, count in told.items())
