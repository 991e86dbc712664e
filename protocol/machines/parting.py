"""Whom a run goes on with and without, and the words that a server ends a run with: to all, or to one party.

One of two who dispute lies, or is cut off from the other by the network, and which one the server cannot see. Whoever
disputes with more parties than may collude is at the root of it, and the round goes on without it. Before it has come
to that the next attempt goes without both, if the others can do without them, or else without the one that is accused.
A liar that stays has to find another honest party to dispute with, which gives it away. Only who gave more parties than
may collude something *false* is named: whoever controls the network can keep back what an honest party sent.

Before a session can begin, a server that lost the state which it is to hold asks for it here, of those who hold it.

Implements specs/protocol.md, section 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np

from veilsum.protocol.agreed.parameters import Parameters
from veilsum.protocol.chain.asking import StateGiven, StateSearch, StateWanted
from veilsum.protocol.chain.hellos import HelloRecord
from veilsum.protocol.chain.state import OTHER_MODEL, ChainState
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.identifiers import SERVER, PartyId, shown_number
from veilsum.protocol.machines.attempt import Dispute, Failed, reason_from_text
from veilsum.protocol.machines.decisions import VoteCast
from veilsum.protocol.machines.events import (
    DecisionMade,
    Event,
    ModelTaken,
    PartyNamed,
    RunFailed,
    Send,
    SessionBegan,
    Warned,
)
from veilsum.protocol.machines.on_chain import ServerOnChain
from veilsum.protocol.machines.participation import RESTORE_SERVER, ParticipationRecord
from veilsum.protocol.machines.rules import SILENCES, MachineRules, RoleParts
from veilsum.protocol.machines.scheme import Scheme
from veilsum.protocol.machines.session import Farewell, Session, require_model_shape
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.wire.messages import Stamp

_LONGEST_DETAIL = 1000
_LONGEST_REASON = 400
_MOST_REASONS = 3
_PATIENT_OPENINGS = 3
HOPELESS = frozenset({AbortReason.POSITION_LOST, AbortReason.SERVER_BEHIND})
"""Why no session can begin, whoever still comes."""
SILENT_SERVER = (
    "silent for too long; if the run is over, the server and the others started once more with --resume give this "
    "party what it missed"
)

CAME_EMPTY = (
    "comes without any round of this run, and is given the newest model; if it took part before, its state folder is "
    "lost: it is to be started with --fresh, and has no vote until a round that it took part in is committed"
)


def nothing() -> Model:
    """No model: what a message carries in the place of one."""
    return np.zeros(0, dtype="<f4")


def ended_early(me: PartyId, held: int, farewell: Farewell, planned: int) -> RunFailed | None:
    """Why a party is not done although the server says so: it lacks rounds that there were, or that were agreed on."""
    if held < (told := farewell.stamp.round):
        detail = f"the run had {told} rounds, this party holds {held}: with the server and the others started once "
        return RunFailed(AbortReason.TIMED_OUT, me, f"{detail}more with --resume it is given the rest")
    if held < planned:
        detail = f"the server ended the run after {held} of {planned} rounds: compare `rounds` in its settings, and "
        return RunFailed(AbortReason.WITHDRAWN, SERVER, f"{detail}go on with --resume")
    return None


def told_failure(farewell: Farewell) -> RunFailed:
    """Why the server ends the run: that it is the one to say so does not make it the culprit."""
    return RunFailed(reason_from_text(farewell.reason), detail=farewell.detail)


class DoneWithout:
    """Whom the next attempt at a round goes without, by what failed in those before it."""

    def __init__(self, parameters: Parameters, chain: ServerOnChain | None) -> None:
        self._parameters = parameters
        self._may_lie = max(1, parameters.colluders)
        self._chain = chain
        self.forget()

    def forget(self) -> None:
        """The round is committed: the next one is tried with everyone."""
        self._pairs: frozenset[Dispute] = frozenset()
        self._falsified: dict[Dispute, AbortReason] = {}
        self._left_out: frozenset[PartyId] = frozenset()
        self._doubted: frozenset[PartyId] = frozenset()

    @property
    def parties(self) -> frozenset[PartyId]:
        return self._left_out | self._doubted

    def learn(self, failed: Failed, members: Iterable[PartyId]) -> None:
        """Find anew whom the others can do without: those in doubt come back where they are needed."""
        there = frozenset(members) | self._doubted
        self._left_out |= frozenset(failed.left_out)
        self._pairs |= failed.disputed
        self._falsified |= failed.falsified
        liars = frozenset(name for name in self._disputing() if len(self._opponents(name)) > self._may_lie)
        unsolved = [pair for pair in self._pairs if not liars & set(pair)]
        accused = liars | {pair[1] for pair in unsolved}
        choices = (accused | {pair[0] for pair in unsolved}, accused, liars)
        rest = there - self._left_out
        self._doubted = next((choice for choice in choices if self._enough(rest - choice)), frozenset())
        if not self._enough(rest):
            self._left_out = frozenset()

    def _enough(self, rest: frozenset[PartyId]) -> bool:
        can_certify = self._chain is None or self._chain.can_certify(rest)
        return can_certify and len(rest) >= self._parameters.min_parties

    def _disputing(self) -> list[PartyId]:
        return sorted({name for pair in self._pairs for name in pair})

    def _opponents(self, name: PartyId) -> set[PartyId]:
        return {other for pair in self._pairs if name in pair for other in pair} - {name}

    @property
    def named(self) -> tuple[PartyNamed, ...]:
        """Those whom more caught with a falsehood than may collude: one of these is honest."""
        found = []
        for name in self._disputing():
            seen = {pair[0]: reason for pair, reason in self._falsified.items() if pair[1] == name}
            if len(seen) > self._may_lie:
                told = ", ".join(sorted(seen)[:10])
                detail = f"falsified what it owed {told}"
                if set(seen.values()) == {AbortReason.WRONG_MODEL}:
                    detail = f"holds another model than {told}; {OTHER_MODEL}"
                found.append(PartyNamed(name, min(seen.values(), key=lambda one: one.name), detail))
        return tuple(found)


class Guests:
    """Who may be in the next session, by what the server remembers; `named` are those who lied."""

    def __init__(
        self,
        rules: MachineRules,
        record: ParticipationRecord,
        chain: ServerOnChain | None,
        without: DoneWithout,
    ) -> None:
        self._everyone = frozenset(rules.roster.participants)
        self._minimum = rules.parameters.min_parties
        self._may_lie = max(rules.parameters.colluders, 1)
        self._record = record
        self._chain = chain
        self._without = without
        self.named: dict[PartyId, PartyNamed] = {}
        self._passed: dict[PartyId, tuple[int, int]] = {}
        self._told_of: dict[PartyId, int] = {}
        self._came_empty: set[PartyId] = set()

    def let_pass(self, names: Collection[PartyId], round_number: int) -> frozenset[PartyId]:
        """These knocked, and an opening ended without them; returns those for whom no other is begun right away.

        All others wait for whoever knocked until the opening is over, so one that only knocks would cost every round.
        After three in a row it waits for twice as many rounds each time.
        """
        for name in names:
            times = self._passed.get(name, (0, 0))[0] + 1
            rounds = 2 ** min(times - _PATIENT_OPENINGS, 16) if times > _PATIENT_OPENINGS else 0
            self._passed[name] = times, round_number + rounds
        return frozenset(name for name in names if not self.may_knock(name, round_number))

    def heard(self, name: PartyId) -> None:
        self._passed.pop(name, None)

    def may_knock(self, name: PartyId, round_number: int) -> bool:
        """Whether a session is opened anew because this party knocks, or says hello when it is too late."""
        waited = round_number >= self._passed.get(name, (0, 0))[1]
        return waited and self.dismissal(name, round_number) is None

    def _not_shunned(self, round_number: int) -> frozenset[PartyId]:
        """Those whose updates are in a sum that may be open cannot be done without, whatever they did."""
        indispensable = self._record.cohort_of(round_number) or frozenset()
        return self._everyone - ((self._without.parties | self.named.keys()) - indispensable)

    def welcome(self, round_number: int) -> frozenset[PartyId]:
        """Everyone but those who must be done without.

        A sum that may be open is repeated by those who took part in it, and the others wait.
        """
        return self._not_shunned(round_number) & (self._record.electorate_of(round_number) or self._everyone)

    def admissible(self, round_number: int) -> frozenset[PartyId]:
        """Who may say hello: to vote on a result that is passed on, one need not have taken part in its sum."""
        may_pass_on = self._chain is not None and self._chain.may_pass_on
        return self._not_shunned(round_number) if may_pass_on else self.welcome(round_number)

    def left_out(self, name: PartyId, round_number: int) -> list[Event]:
        """Say once a round of a party that is here why it has to wait, if it has to."""
        if name in self.admissible(round_number) or self._told_of.get(name) == round_number:
            return []
        self._told_of[name] = round_number
        if name in self._without.parties:
            why = "an attempt at it failed over this party, or over a dispute with it"
        else:
            why = "its sum may be open already, and only those who took part in it may repeat it"
        shown = f"round {shown_number(round_number)}"
        return [Warned(f"{name} is left out of {shown}: {why}; it is let in again when {shown} is committed")]

    def begun(self, session: Session, behind: frozenset[PartyId]) -> list[Event]:
        """That a session begins, and who comes with nothing of what there is: whoever looks after it should know."""
        empty = {name for name in behind if session.positions[name] == 0} - self._came_empty
        self._came_empty |= empty
        return [
            SessionBegan(session.id, session.members),
            *(Warned(f"{name} {CAME_EMPTY}") for name in sorted(empty)),
        ]

    def dismissal(self, name: PartyId, round_number: int) -> Farewell | None:
        """What a party hears that lied and was named: the run goes on without it, unless an open sum needs it."""
        named = self.named.get(name)
        if named is None or name in self.welcome(round_number):
            return None
        detail = f"the run goes on without {named.party}, which {named.detail}"[:_LONGEST_DETAIL]
        return Farewell(Stamp(b"", round_number), False, named.reason.value, detail, nothing())

    def here(self, hellos: Mapping[PartyId, HelloRecord], round_number: int) -> dict[PartyId, HelloRecord]:
        """Of whom a session is made, if these said hello."""
        passes_on = self._chain is not None and self._chain.supported(hellos) is not None
        welcome = self.admissible(round_number) if passes_on else self.welcome(round_number)
        return {name: hello for name, hello in hellos.items() if name in welcome}

    def lack_state(self, hellos: Mapping[PartyId, HelloRecord], round_number: int) -> bool:
        """Whether a session is worth while in which peers give each other the state of this position."""
        behind = (one.rounds_done < round_number for one in self.here(hellos, round_number).values())
        return any(behind) and self.too_few(hellos, round_number) is None

    def all_is_said(self, hellos: Mapping[PartyId, HelloRecord], round_number: int) -> bool:
        """Whether waiting for more hellos changes nothing: these can begin, or nobody could."""
        failed = self.too_few(hellos, round_number)
        return failed is None or failed.reason in HOPELESS

    def too_few(self, hellos: Mapping[PartyId, HelloRecord], round_number: int) -> Failed | None:
        """Why those who are here cannot begin a session, if so."""
        if (outrun := self._outrun(hellos, round_number)) is not None:
            return outrun
        here, minimum = self.here(hellos, round_number), self._minimum
        if len(here) < minimum:
            missing = ", ".join(sorted(self._everyone - here.keys())[:10])
            detail = f"{len(here)} of at least {minimum} parties are here; missing: {missing}"
            return Failed(AbortReason.COHORT_TOO_SMALL, detail=detail)
        return None if self._chain is None else self._chain.no_quorum(here)

    def _outrun(self, hellos: Mapping[PartyId, HelloRecord], round_number: int) -> Failed | None:
        """That more than may lie did this round, which nobody repeats, and all others would be too few for it."""
        wanted, minimum = self.welcome(round_number), self._minimum
        said = {name: hellos[name].rounds_done for name in sorted(wanted & hellos.keys())}
        ahead = [f"{name} {rounds}" for name, rounds in said.items() if rounds > round_number]
        lacking = len(wanted) - len(ahead) < minimum <= len(wanted)
        if self._chain is not None or not lacking or len(ahead) <= self._may_lie:
            return None
        detail = (
            f"the server has {round_number} rounds done, fewer than its parties, and they repeat none: "
            f"{RESTORE_SERVER}; rounds done: {', '.join(ahead[:10])}"
        )
        return Failed(AbortReason.SERVER_BEHIND, SERVER, detail)


class LostState:
    """A state that the server is to hold and does not: while a session opens, it asks those who do."""

    def __init__(self, rules: MachineRules, chain: ServerOnChain | None) -> None:
        self._rules = rules
        self._chain = chain
        self._search: StateSearch | None = None

    def ask(
        self, hellos: Mapping[PartyId, HelloRecord], invitation: bytes, now: float
    ) -> tuple[list[Event], float] | None:
        """Ask one more holder for what we lack; until when it has time, or None where we lack nothing.

        A state that votes bear, and that nobody gives us, is none to pass on: its sum may be tried again.
        """
        keeper = self._chain.keeper if self._chain is not None else None
        lacking = keeper.lacking() if keeper is not None else None
        if keeper is None or lacking is None:
            return None
        if self._search is None or (self._search.lacking, self._search.invitation) != (lacking, invitation):
            self._search = StateSearch(lacking, invitation)
        search, holders = self._search, keeper.holders(lacking, hellos)
        name = search.next_holder(holders, now, self._rules.timing.phase_s, self._rules.parameters.colluders)
        if name is not None:
            return [Send(name, StateWanted(lacking.stamp, invitation))], search.until
        if not search.over:
            return [], search.until
        if lacking.position > keeper.newest_position():
            return None
        raise Rejection(AbortReason.WRONG_MODEL, _not_given(search, keeper.record.position))

    def take(self, sender: PartyId, given: StateGiven, attempt: int) -> list[Event]:
        """Keep the state that we asked for, or raise and change nothing."""
        search, chain = self._search, self._chain
        if chain is None or search is None or sender not in search.asked:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "we did not ask this party for a state")
        if (given.stamp, given.invitation) != (search.lacking.stamp, search.invitation):
            raise Rejection(AbortReason.WRONG_ROUND, "another state than the one that we asked for")
        require_model_shape(given.model, self._rules.parameters.dimension)
        keeper, position = chain.keeper, given.stamp.round
        memory = given.memory.tobytes()
        record = keeper.regained(
            ChainState.of(keeper.terms.chain, position, given.before, given.model, memory)
        )
        keeper.record, self._search = record, None
        if record.position < position:
            return [DecisionMade(VoteCast(record.position, attempt, record))]
        return [ModelTaken(position, given.model, record)]


def _not_given(search: StateSearch, held: int) -> str:
    """What a server says that cannot go on without a state."""
    asked = f"asked in vain: {', '.join(search.asked[:10])}" if search.asked else "nobody here holds it"
    return (
        f"the parties hold position {search.lacking.position}, the server's folder has {held}, and nobody gave it the "
        f"state ({asked}): start a party that holds it, restore a newer folder of the server, or begin another chain "
        "with the model that a party exports (veilsum export, veilsum roster sign --new-chain)"
    )


class Parting:
    """What participants are left with is made once, however many hear of it."""

    def __init__(self, scheme: Scheme, parts: RoleParts, chain: ServerOnChain | None) -> None:
        self._scheme = scheme
        self._parts = parts
        self._chain = chain
        self._model: Model | None = None
        self._withdrawn: tuple[int, dict[PartyId, str]] = (-1, {})
        self._divided: tuple[int, Failed] | None = None

    def hear_withdrawal(self, party: PartyId, reason: str, round_number: int) -> Warned:
        """Keep who left a round and why, in words of its own: if the round comes to nothing, that is the cause."""
        known = self._withdrawn[1] if self._withdrawn[0] == round_number else {}
        self._withdrawn = round_number, {**known, party: reason}
        return Warned(f"{party} withdrew: {reason}")

    def hear_failure(self, failed: Failed, round_number: int) -> None:
        """Keep that parties had different models: whom the server goes without over it is missing later."""
        if failed.reason is AbortReason.WRONG_MODEL:
            self._divided = round_number, failed

    def explained(self, failed: Failed, round_number: int) -> Failed:
        """What came first: our own lost connection, another model, or that parties withdrew from the round."""
        explained = self._parts.explained(failed)
        of_round, withdrawn = self._withdrawn
        if explained is not failed or failed.reason not in SILENCES:
            return explained
        if self._divided is not None and self._divided[0] == round_number:
            cause = self._divided[1]
            return replace(cause, detail=f"{cause.detail}; then: {failed.reason.value}: {failed.detail}")
        if of_round != round_number:
            return explained
        by_reason: dict[str, list[PartyId]] = {}
        for party, reason in withdrawn.items():
            by_reason.setdefault(reason[:_LONGEST_REASON], []).append(party)
        told = [f"{', '.join(sorted(names)[:10])} withdrew: {reason}" for reason, names in by_reason.items()]
        detail = f"{'; '.join(told[:_MOST_REASONS])}; then: {failed.reason.value}: {failed.detail}"
        culprit = next(iter(withdrawn)) if len(withdrawn) == 1 else ""
        return replace(failed, reason=AbortReason.WITHDRAWN, culprit=culprit, detail=detail)

    def farewell(
        self, stamp: Stamp, failed: Failed | None, held: Model | None, *, lacks_it: bool
    ) -> Farewell:
        """The end, with the model that the server holds; one that has the last state is sent its proof alone."""
        reason, detail = ("", "") if failed is None else (failed.reason.value, failed.detail)
        told = stamp, failed is None, reason, detail[:_LONGEST_DETAIL]
        model = self._model_to_keep(held, completed=failed is None)
        if self._chain is None or not len(model):
            return Farewell(*told, model)
        record, state = self._chain.record, self._chain.point().state
        if not lacks_it:
            return Farewell(*told, nothing(), certificate=record.certificate)
        memory = np.frombuffer(state.memory, dtype=np.uint8)
        return Farewell(*told, state.model, memory, state.before, record.certificate)

    def _model_to_keep(self, held: Model | None, *, completed: bool) -> Model:
        """Nothing where the server holds no model or gives none away."""
        if self._model is None and held is not None:
            scheme, parts = self._scheme, self._parts
            self._model = scheme.parting_model(held, parts.equipment, parts.random, completed=completed)
            if completed and self._model is None:
                raise LocalProtocolError(
                    f"{scheme.name} leaves participants without a model after a completed run: they refuse to end so; "
                    "let parting_model return one"
                )
        return self._model if self._model is not None else nothing()
