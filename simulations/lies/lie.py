"""A lie: who tells it, what is said in place of the truth, and for whom that makes sense.

Everyone runs the honest machines. A liar differs in two places, and in nothing else: a message of its machine may be
replaced or kept back as it is sent (`instead_of`) or have another before it (`beforehand`), and its machine may go by
rules of its own (`own_rules`), which is how a liar encodes another input than it trained, and tags it as if it were
true. What a lie is made with is what its liars have: their keys, their machines, and what these hold and are sent. It
never asks an honest party for anything.

Rejected: machines that lie, a copy of each machine that would be wrong in more places than one; messages out of thin
air, which the table of specs/testing.md has for single refusals, and which do not make a whole run.

Implements specs/lies.md, section 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar

from veilsum.protocol.agreed.parameters import Parameters, Recovery
from veilsum.protocol.agreed.threat import Threat
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.participant import ParticipantMachine
from veilsum.protocol.machines.rules import MachineRules
from veilsum.protocol.machines.scheme import Scheme
from veilsum.protocol.machines.server import ServerMachine
from veilsum.protocol.numbers.fixedpoint import FixedPoint
from veilsum.protocol.wire.messages import Message


@dataclass(frozen=True)
class Liars:
    """Who lies, with all that they have; `victim` is a party that a lie is about, where it is about one."""

    names: tuple[PartyId, ...]
    victim: PartyId
    rules: MachineRules = field(repr=False)
    identities: Mapping[PartyId, Identity] = field(repr=False)
    machine_of: Callable[[PartyId], object] = field(repr=False)

    @property
    def parameters(self) -> Parameters:
        return self.rules.parameters

    @property
    def server(self) -> Identity:
        """The keys of a server that lies."""
        return self.identities[SERVER]

    def server_machine(self) -> ServerMachine:
        machine = self.machine_of(SERVER)
        assert isinstance(machine, ServerMachine)
        return machine

    def participant(self) -> ParticipantMachine:
        """The machine of the participant that lies."""
        machine = self.machine_of(next(name for name in self.names if name != SERVER))
        assert isinstance(machine, ParticipantMachine)
        return machine


class Lie:
    """One lie, as it is told in one run; what users read of it are the attributes of its class."""

    name: ClassVar[str]
    does: ClassVar[str]
    """What the liar does, in one sentence without a subject."""
    noticed_as: ClassVar[str]
    """What becomes of it: the typed reasons, or the limit that it shows."""
    by: ClassVar[tuple[str, ...]] = (SERVER,)
    """Who lies: the server, the first participant, or both."""
    succeeds: ClassVar[bool] = False
    """Whether nobody notices: what the threat model prints as a limit."""
    rounds: ClassVar[int] = 1
    """How many rounds it takes until there is something to lie about."""
    about_models: ClassVar[bool] = False
    """Whether it needs a server that has a model to give."""
    about_lists: ClassVar[bool] = False
    """Whether it needs lists of survivors and shares."""
    encodings: ClassVar[Mapping[str, type[FixedPoint]]] = {}
    """How the machine of a liar encodes and decodes, by its role, where it does so in another way than agreed."""
    to_peers: ClassVar[bool] = False
    """Whether it is told to those who keep the model from the server."""

    def __init__(self, liars: Liars) -> None:
        self.liars = liars

    def instead_of(self, sender: PartyId, receiver: PartyId, message: Message) -> Message | None:
        """What a liar sends in place of a message of its machine; None: nothing."""
        return message

    def hear(self, sender: PartyId, message: Message) -> None:
        """A liar is sent this."""

    def beforehand(self, receiver: PartyId) -> Message | None:
        """What a liar says before the next message of its machine to a party, if anything."""
        return None

    @classmethod
    def own_rules(cls, names: Sequence[PartyId], rules: MachineRules) -> Mapping[PartyId, MachineRules]:
        """The rules that a liar's machine goes by, where they are not those that were agreed on."""
        liars = dict(zip(cls.by, names, strict=True))
        return {liars[role]: with_encoding(encoding, rules) for role, encoding in cls.encodings.items()}

    @classmethod
    def liars_among(cls, participants: Sequence[PartyId]) -> tuple[PartyId, ...]:
        return tuple(SERVER if one == SERVER else participants[0] for one in cls.by)

    @classmethod
    def misfits(cls, scheme: Scheme) -> Iterator[str]:
        """Why the lie makes no sense in this scheme, if so."""
        if not scheme.has_chain:
            yield f"{scheme.name} verifies no sum and keeps no chain: there a server is believed, whatever it says"
        elif cls.about_models and not scheme.server_holds_model:
            yield f"the server of {scheme.name} has no model to give"
        elif cls.to_peers and scheme.server_holds_model:
            yield f"{scheme.name} has no peers"

    @classmethod
    def problems(cls, scheme: Scheme, rules: MachineRules) -> Iterator[str]:
        """All reasons why the lie cannot be told under these rules."""
        yield from cls.misfits(scheme)
        if rules.rounds < cls.rounds:
            yield f"it takes {cls.rounds} rounds, not {rules.rounds}"
        if cls.about_lists and rules.parameters.recovery is Recovery.NONE:
            yield "without recovery nobody shares anything, and nobody signs a list"
        if SERVER in cls.by and rules.parameters.threat is not Threat.LYING:
            yield f"the threat is {rules.parameters.threat.value}: there the server is taken not to lie"


def with_encoding(encoding: type[FixedPoint], rules: MachineRules) -> MachineRules:
    """The same rules, for a machine that encodes or decodes in another way; the agreed settings stay the same."""
    agreed = rules.parameters.encoding
    mine = encoding(**{one.name: getattr(agreed, one.name) for one in fields(agreed)})
    return replace(rules, parameters=replace(rules.parameters, encoding=mine))
