"""Records a simulation so that the view of any adversary can be cut out of it afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import Event, RoundCommitted
from veilsum.protocol.machines.participant import ParticipantMachine
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.schemes.ampc.decomposition import EpochSecrets
from veilsum.protocol.wire.messages import Message, kind_of
from veilsum.roles.learning.contract import LocalUpdate
from veilsum.roles.learning.task import Samples
from veilsum.roles.views.view import (
    BROKER,
    EpochKeys,
    Observed,
    OwnUpdate,
    PerturbationSecrets,
    PublicFacts,
    Result,
    View,
)
from veilsum.simulations.run.record import Recorder
from veilsum.simulations.run.simulation import Node

COALITION = "coalition"


@dataclass
class ViewRecorder(Recorder):
    """Also hears every message. `data` is what each party trains on, `outputs` how many the model has.

    `public_model` is the first model that everybody knows, if the federation begins with another one.
    """

    data: Mapping[PartyId, Samples] = field(default_factory=dict)
    outputs: int = 0
    public_model: Model | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._observed: list[Observed] = []
        self._results: list[Result] = []
        self._own: list[OwnUpdate] = []
        self._keys: dict[tuple[PartyId, bytes], EpochKeys] = {}
        self._noise: list[PerturbationSecrets] = []
        if self.federation.noise is not None:
            self.federation.noise.on_secrets = self._noise.append

    def on_send(self, now: float, sender: PartyId, receiver: PartyId, message: Message, size: int) -> None:
        super().on_send(now, sender, receiver, message, size)
        self._observed.append(Observed(now, sender, receiver, kind_of(message), size, message))

    def on_training(self, node: Node, round_number: int, update: LocalUpdate) -> None:
        super().on_training(node, round_number, update)
        self._own.append(OwnUpdate(node.name, round_number, update.samples, update.payload))
        self._note_keys(node)

    def on_event(self, now: float, node: Node, event: Event) -> None:
        super().on_event(now, node, event)
        if isinstance(event, RoundCommitted):
            members = tuple(event.members)
            self._results.append(
                Result(node.name, event.round, event.attempt, members, event.model, event.total)
            )

    def _note_keys(self, node: Node) -> None:
        """A party's coins are part of its view; of a peer's, the epoch's seeds are what matters."""
        machine = node.machine
        if not isinstance(machine, ParticipantMachine) or machine.session is None:
            return
        if isinstance(machine.secrets, EpochSecrets):
            session = machine.session.id
            self._keys[node.name, session] = EpochKeys.of(node.name, session, machine.secrets)

    def view(self, *members: str) -> View:
        """What these parties saw together, or the broker."""
        known = set(self.federation.identities)
        if members == (BROKER,):
            members = ()
        unknown = [name for name in members if name not in known]
        if unknown:
            raise ParameterError([f"{unknown[0]} took no part; parties: {', '.join(sorted(known))}"])
        parties = set(members)
        mine = [one for one in self._observed if not parties or {one.sender, one.receiver} & parties]
        if not parties:
            mine = [Observed(one.time_s, one.sender, one.receiver, one.kind, one.size) for one in mine]
        return View(
            members=tuple(members),
            facts=self._facts(),
            initial_model=self.federation.initial_model if self.public_model is None else self.public_model,
            messages=tuple(mine),
            results=tuple(one for one in self._results if one.party in parties),
            own_updates=tuple(one for one in self._own if one.party in parties),
            own_data={name: self.data[PartyId(name)] for name in members if name in self.data},
            epoch_keys=tuple(one for one in self._keys.values() if one.party in parties),
            noise_secrets=tuple(self._noise) if SERVER in parties else (),
        )

    def _facts(self) -> PublicFacts:
        samples = next(iter(self.data.values()))
        settings = self.federation.config.agreed()
        return PublicFacts(settings, self.federation.parameters.dimension, samples.input_shape, self.outputs)


def members_of(adversary: str, parties: Sequence[str]) -> tuple[str, ...]:
    """Read an adversary as users write it: a role, `coalition`, `others`, or names joined by +.

    A curious client or peer is the first party. `coalition` is the server and that party; `others` is everyone
    but the last party, without the server.
    """
    first = parties[0]
    named = {
        SERVER: (SERVER,),
        BROKER: (BROKER,),
        "client": (first,),
        "peer": (first,),
        COALITION: (SERVER, first),
        "others": tuple(parties[:-1]),
    }
    if adversary in named:
        return named[adversary]
    members = tuple(adversary.split("+"))
    wrong = [name for name in members if name not in (SERVER, *parties)]
    if wrong or len(set(members)) != len(members):
        raise ParameterError(
            [f"adversary {adversary!r} is not one of {', '.join(named)}, nor names of parties joined by +"]
        )
    return members
