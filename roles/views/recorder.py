"""Notes what is seen in a run, so that the view of any adversary can be cut out of it.

A process has one recorder for its own party (recording.py puts its view into a file); a simulation has one for all
parties. Noting is appending to lists. Everything stays in memory, so this is for audits and not for runs of weeks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import Event, RoundCommitted
from veilsum.protocol.machines.participant import ParticipantMachine
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.wire.messages import Message, kind_of
from veilsum.roles.learning.contract import LocalUpdate
from veilsum.roles.learning.task import Samples
from veilsum.roles.process.machines import Machine
from veilsum.roles.process.observer import RunObserver
from veilsum.roles.views.view import (
    BROKER,
    Observed,
    OwnUpdate,
    PerturbationSecrets,
    PublicFacts,
    Result,
    SessionKeys,
    TellsSecrets,
    TellsSeeds,
    View,
)


@dataclass
class ViewRecorder(RunObserver):
    """`data` is what each party trains on, as far as it is known here."""

    facts: PublicFacts
    initial_model: Model
    data: Mapping[PartyId, Samples] = field(default_factory=dict)
    earlier: View | None = None
    """What an earlier life has recorded of the same run."""

    def __post_init__(self) -> None:
        before = self.earlier
        self._messages = [] if before is None else list(before.messages)
        self._results = [] if before is None else list(before.results)
        self._updates = [] if before is None else list(before.own_updates)
        known = () if before is None else before.session_keys
        self._keys = {(one.party, one.session): one for one in known}
        drawn = () if before is None else before.perturbation_secrets
        self._drawn: list[tuple[str, PerturbationSecrets]] = [
            (name, one) for one in drawn for name in (before.members[:1] if before is not None else ())
        ]
        self._machines: dict[PartyId, Machine] = {}

    # What is told.

    def began(self, now: float, party: PartyId, machine: Machine) -> None:
        self._machines[party] = machine

    def hear_secrets(self, party: PartyId, equipment: object) -> None:
        """The perturbation keys that the party draws are its own, where it draws some."""
        if isinstance(equipment, TellsSecrets):
            equipment.on_secrets = lambda drawn: self._drawn.append((party, drawn))

    def sent(self, now: float, party: PartyId, receiver: PartyId, message: Message, size: int) -> None:
        self._messages.append(Observed(now, party, receiver, kind_of(message), size, message))

    def received(self, now: float, party: PartyId, sender: PartyId, message: Message, size: int) -> None:
        """Note it, unless the sender is recorded here as well: then it was noted when it was sent."""
        if sender not in self._machines:
            self._messages.append(Observed(now, sender, party, kind_of(message), size, message))

    def trained(self, now: float, party: PartyId, round_number: int, update: LocalUpdate) -> None:
        self._updates.append(OwnUpdate(party, round_number, update.samples, update.payload))
        self._note_keys(party)

    def noted(self, now: float, party: PartyId, event: Event) -> None:
        self._note_keys(party)
        if isinstance(event, RoundCommitted):
            members = tuple(str(name) for name in event.members)
            self._results.append(Result(party, event.round, event.attempt, members, event.model, event.total))

    def _note_keys(self, party: PartyId) -> None:
        """A party's coins are part of its view; of a participant's, the seeds of a session are what matters."""
        machine = self._machines.get(party)
        if not isinstance(machine, ParticipantMachine) or machine.session is None:
            return
        if isinstance(machine.secrets, TellsSeeds):
            session = machine.session.id
            self._keys[party, session] = SessionKeys.of(party, session, machine.secrets)

    # Views.

    def view(self, *members: str) -> View:
        """What these parties of the federation saw together, or the broker."""
        known = {SERVER, *self.facts.parties}
        if members == (BROKER,):
            members = ()
        unknown = [name for name in members if name not in known]
        if unknown:
            raise ParameterError([f"{unknown[0]} took no part; parties: {', '.join(sorted(known))}"])
        return self._cut(members)

    def _cut(self, members: tuple[str, ...]) -> View:
        return View(
            members=members,
            facts=self.facts,
            initial_model=self.initial_model,
            messages=self._seen_by(set(members)),
            results=tuple(one for one in self._results if one.party in members),
            own_updates=tuple(one for one in self._updates if one.party in members),
            own_data={name: self.data[PartyId(name)] for name in members if name in self.data},
            session_keys=tuple(one for one in self._keys.values() if one.party in members),
            perturbation_secrets=tuple(drawn for name, drawn in self._drawn if name in members),
        )

    def _seen_by(self, parties: Collection[str]) -> tuple[Observed, ...]:
        if not parties:
            return tuple(
                Observed(one.time_s, one.sender, one.receiver, one.kind, one.size) for one in self._messages
            )
        return tuple(one for one in self._messages if one.sender in parties or one.receiver in parties)
