"""A lie in one run: the hook that tells it, and the observer that hears what honest parties make of it.

    play = LiePlay(find_lie("server:shift"), federation, machine_of)
    play.instead_of(sender, receiver, message)      the messages that travel
    play.report(refusals, endings)                  what was noticed, who was named, what was committed

What honest parties notice is what they say themselves: a message of the lie that they refuse, an attempt that fails by
what they found, a party that they name. What a server tells them, and a wait that ends, is left out: it follows.

Implements specs/lies.md, section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from veilsum.protocol.errors import AbortReason, ParameterError, ProtocolError, RemoteProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import (
    Event,
    ModelTaken,
    PartyNamed,
    RoundCommitted,
    RoundFailed,
    RunFailed,
    RunFinished,
)
from veilsum.protocol.machines.rules import MachineRules
from veilsum.protocol.machines.session import RoundClosed
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message, kind_of
from veilsum.roles.learning.contract import LocalUpdate
from veilsum.roles.process.observer import RunObserver
from veilsum.simulations.lies.lie import Liars, Lie
from veilsum.simulations.lies.reference import HonestChain, StagedFederation
from veilsum.simulations.lies.report import LieReport, Noticed

OUT_OF_PLACE = (AbortReason.UNEXPECTED_MESSAGE, AbortReason.WRONG_SESSION, AbortReason.WRONG_ROUND)
"""Reasons why a message is refused that comes too late, as many do once an attempt has failed."""
CONSEQUENCES = (AbortReason.TIMED_OUT, AbortReason.WITHDRAWN)
"""Reasons why an attempt fails at those who noticed nothing."""


class RefusedMessage(Protocol):
    """What a party did not accept, and why; without the message, if that could not be read."""

    @property
    def party(self) -> PartyId: ...
    @property
    def message(self) -> Message | None: ...
    @property
    def error(self) -> ProtocolError: ...


def rules_of_liars(lie: type[Lie], federation: StagedFederation) -> Mapping[PartyId, MachineRules]:
    """The rules that the machines of liars go by; refuses a lie that makes no sense in this federation."""
    problems = list(lie.problems(federation.scheme, federation.rules))
    if problems:
        raise ParameterError([f"the lie {lie.name} makes no sense here: {one}" for one in problems])
    return lie.own_rules(lie.liars_among(federation.roster.participants), federation.rules)


class LiePlay(RunObserver):
    """One lie, told in one run."""

    def __init__(
        self,
        lie: type[Lie],
        federation: StagedFederation,
        machine_of: Callable[[PartyId], object],
    ) -> None:
        participants = federation.roster.participants
        names = lie.liars_among(participants)
        identities = {name: federation.identities[name] for name in names}
        self.liars = Liars(names, participants[-1], federation.rules, identities, machine_of)
        self.lie = lie
        self._told = lie(self.liars)
        self._chain = HonestChain(federation)
        self._lies: set[tuple[PartyId, str, bytes, int, int]] = set()
        self._hearsay: set[tuple[PartyId, int, int]] = set()
        self._noticed: list[Noticed] = []
        self._named: list[PartyId] = []
        self._committed: set[int] = set()
        self._times_told = 0

    def instead_of(self, sender: PartyId, receiver: PartyId, message: Message) -> list[Message]:
        if sender not in self.liars.names:
            return [message]
        found = self._told.beforehand(receiver), self._told.instead_of(sender, receiver, message)
        told = [one for one in found if one is not None]
        self._lies.update(_place(receiver, one) for one in told if one is not message)
        encoded = bool(self.lie.encodings) and isinstance(message, MaskedInput)
        self._times_told += encoded or len(told) != 1 or told[0] is not message
        return told

    def trained(self, now: float, party: PartyId, round_number: int, update: LocalUpdate) -> None:
        self._chain.train(party, round_number, update)

    def received(self, now: float, party: PartyId, sender: PartyId, message: Message, size: int) -> None:
        if isinstance(message, RoundClosed) and not message.committed:
            self._hearsay.add((party, message.stamp.round, message.stamp.attempt))
        if party in self.liars.names:
            self._told.hear(sender, message)

    def noted(self, now: float, party: PartyId, event: Event) -> None:
        if party in self.liars.names:
            return
        match event:
            case RoundCommitted():
                self._committed.add(event.round)
                if event.model_hash:
                    self._chain.claim(party, event.round + 1, event.members, event.model_hash)
            case ModelTaken(chain=record) if record is not None and record.certificate is not None:
                members = record.certificate.ballot.survivors
                self._chain.claim(party, record.position, members, record.known_state.hash)
            case RoundFailed() if event.reason not in CONSEQUENCES:
                if (party, event.round, event.attempt) not in self._hearsay:
                    self._noticed.append(Noticed(party, event.reason, event.culprit, event.detail))
            case PartyNamed():
                self._named.append(event.party)
                detail = f"{event.party} {event.detail}"
                self._noticed.append(Noticed(party, event.reason, event.party, detail))
            case _:
                pass

    def report(
        self, refusals: Iterable[RefusedMessage], endings: Mapping[PartyId, RunFinished | RunFailed]
    ) -> LieReport:
        """What became of the lie, once the run is over."""
        refused = [error for one in refusals if (error := self._held_against_a_liar(one)) is not None]
        named = {*self._named, *(one.culprit for one in refused)}
        return LieReport(
            lie=self.lie,
            liars=self.liars.names,
            told=self._times_told,
            noticed=tuple(dict.fromkeys([*self._noticed, *refused])),
            named=tuple(sorted(map(PartyId, named))),
            committed=tuple(sorted(self._committed)),
            falsified_commits=len(self._chain.falsified),
            abort_reason=self._abort_reason(endings),
        )

    def _held_against_a_liar(self, refused: RefusedMessage) -> Noticed | None:
        """What an honest party refused of a liar: the lie itself, or anything else but what only comes too late."""
        error, message, party = refused.error, refused.message, refused.party
        if message is None or party in self.liars.names or not isinstance(error, RemoteProtocolError):
            return None
        if _place(party, message) not in self._lies and (
            error.culprit not in self.liars.names or error.reason in OUT_OF_PLACE
        ):
            return None
        return Noticed(party, error.reason, error.culprit, error.detail)

    def _abort_reason(self, endings: Mapping[PartyId, RunFinished | RunFailed]) -> AbortReason | None:
        """Why the run failed for all honest parties, by the word of the server where that is honest."""
        honest = {name: ended for name, ended in endings.items() if name not in self.liars.names}
        failed = {name: ended.reason for name, ended in honest.items() if isinstance(ended, RunFailed)}
        if not failed or len(failed) < len(honest):
            return None
        return failed.get(SERVER, next(iter(failed.values())))


class HonestCommits(RunObserver):
    """Tells another observer everything but what liars say they committed."""

    def __init__(self, observer: RunObserver, liars: tuple[PartyId, ...]) -> None:
        self._observer = observer
        self._liars = liars

    def sent(self, now: float, party: PartyId, receiver: PartyId, message: Message, size: int) -> None:
        self._observer.sent(now, party, receiver, message, size)

    def trained(self, now: float, party: PartyId, round_number: int, update: LocalUpdate) -> None:
        self._observer.trained(now, party, round_number, update)

    def noted(self, now: float, party: PartyId, event: Event) -> None:
        if party not in self._liars or not isinstance(event, RoundCommitted):
            self._observer.noted(now, party, event)


def _place(receiver: PartyId, message: Message) -> tuple[PartyId, str, bytes, int, int]:
    stamp = message.stamp
    return receiver, kind_of(message), stamp.session, stamp.round, stamp.attempt
