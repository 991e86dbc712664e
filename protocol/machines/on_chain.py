"""What both sides do about the chain at the edges of attempts: as a session opens, as a round does, at the end.

Implements specs/chain.md, section 3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from veilsum.protocol.agreed.parameters import Recovery
from veilsum.protocol.chain.asking import StateGiven, StateWanted, held_state
from veilsum.protocol.chain.hellos import HelloRecord, proven_release, statements_among, voters_among
from veilsum.protocol.chain.keeper import ChainKeeper
from veilsum.protocol.chain.member import ChainMember, ChainTerms, GivenState
from veilsum.protocol.chain.record import ChainPoint, ChainRecord
from veilsum.protocol.chain.state import OTHER_MODEL, ChainState, hash_model, shown_hash
from veilsum.protocol.chain.statements import EnteredAttempt, PositionRules, voters_rule
from veilsum.protocol.chain.votes import Certificate, SupportedBallot
from veilsum.protocol.errors import AbortReason, Rejection, RemoteProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId, shown_number
from veilsum.protocol.machines.attempt import Failed, SumRules, failure_of
from veilsum.protocol.machines.events import Event, ModelTaken, RoundCommitted, Send, Warned
from veilsum.protocol.machines.participation import ParticipationRecord
from veilsum.protocol.machines.rules import MachineRules, RoleParts, StartingPoint
from veilsum.protocol.machines.scheme import Scheme
from veilsum.protocol.machines.session import (
    Farewell,
    Hello,
    RoundOpened,
    Session,
    SessionOpened,
    Withdrawn,
    require_model_shape,
    require_no_model,
)
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.wire.messages import Message, Stamp


def chain_terms(scheme: Scheme, rules: MachineRules) -> ChainTerms:
    certifies, hides = scheme.certifies(rules.parameters), not scheme.server_holds_model
    return ChainTerms.of(rules.roster, rules.parameters, certifies=certifies, hides_hashes=hides)


class ParticipantOnChain(SumRules):
    """A participant's part of the chain, in events; `server_gives`: whether one that is behind asks the server."""

    def __init__(self, scheme: Scheme, rules: MachineRules, parts: RoleParts, begin: StartingPoint) -> None:
        terms = chain_terms(scheme, rules)
        self._member = ChainMember(terms, begin.chain_record(rules.roster), parts.chain_step)
        self._dimension = rules.parameters.dimension
        self._server_gives = scheme.server_holds_model
        self._passes_on = scheme.passes_on
        self._me = parts.identity.name
        self._parameters = rules.parameters
        self._voters_of = voters_rule(rules.parameters, shares_follow_graph=scheme.shares_follow_graph)
        self._participation = begin.record
        self._rules: PositionRules | None = None
        self._session: Session | None = None
        self._began_at = -1
        self._handed_over: set[tuple[bytes, int, bytes]] = set()

    @property
    def record(self) -> ChainRecord:
        return self._member.record

    @property
    def state(self) -> ChainState:
        return self.record.known_state

    def point(self) -> ChainPoint:
        return self._member.point()

    def stated(self) -> tuple[ChainRecord, tuple[EnteredAttempt, ...]]:
        """What a hello says of the chain, and of our attempts at its position: at least whether we uploaded there."""
        said = self._participation.attempts_at(self.record.position) if self._member.terms.certifies else ()
        if not self._lists_are_signed:
            said = tuple(replace(one, released=(), voucher=b"") for one in said)
        return self.record, said

    def hand_over(self, wanted: StateWanted) -> list[Event]:
        """Give a server that lost it the state that it asks for, once; where peers hold the model, never."""
        once = (wanted.invitation, wanted.stamp.round, wanted.stamp.model_hash)
        if not self._server_gives:
            raise Rejection(
                AbortReason.UNEXPECTED_MESSAGE, "the server does not hold the model in this scheme"
            )
        if once in self._handed_over:
            raise Rejection(AbortReason.REPLAY, "this state was given already")
        state = held_state(self.record, wanted.stamp)
        self._handed_over = {one for one in self._handed_over if one[0] == wanted.invitation} | {once}
        memory = np.frombuffer(state.memory, dtype=np.uint8)
        return [Send(SERVER, StateGiven(wanted.stamp, wanted.invitation, state.model, memory, state.before))]

    @property
    def _lists_are_signed(self) -> bool:
        """Without recovery nobody proposes a list: the upload itself spends the round, for the same parties only."""
        return self._member.terms.certifies and self._parameters.recovery is Recovery.SHARES

    def enter_session(self, session: Session, opened: SessionOpened) -> list[Event]:
        """Refuse a session at the wrong position, or one that could certify nothing.

        If our vote was won while we were away, the state that it was for is ours.
        """
        position, voting = opened.stamp.round, session.voters(opened.stamp.round)
        if opened.supported is not None and not self._passes_on:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "results are not passed on in this scheme")
        if self._member.terms.certifies:
            _require_newest(session, position)
        self._member.consider_session(position, opened.certificate, voting, opened.supported)
        took_part = self._took_part(opened.certificate)
        won = self._member.won(position, opened.certificate, took_part=took_part)
        self._session, self._rules, self._began_at = session, None, position
        if self._member.terms.certifies:
            self._rules = PositionRules.of(self._me, self._voters_of, session.statements(position))
        return [] if won is None else self._take_won(won)

    def _take_won(self, won: ChainRecord) -> list[Event]:
        """The state that we voted for is certified: the round is ours."""
        self._member.record, certificate = won, won.certificate
        assert certificate is not None
        members = certificate.ballot.survivors
        return [RoundCommitted(won.position - 1, 0, members, self.state.hash, self.state.model, chain=won)]

    def enter_round(self, opened: RoundOpened) -> list[Event]:
        """Begin from our own state, or from the one that the server gives us because we are behind."""
        stamp = opened.stamp
        if self._rules is not None:
            self._require_judged(stamp.round)
            if not self._is_passed_on:
                self._rules.require_upload(stamp.round)
        if not self._server_gives:
            require_no_model(opened)
            self._member.require_position(stamp.round)
            return []
        if stamp.round == self.record.position:
            self._member.require_state(stamp.model_hash)
            return []
        return self._adopt(opened, self._member.ahead)

    def objection(self, message: Message, refused: RemoteProtocolError) -> list[Event]:
        """A server that names another state than ours hears which is ours, and our operator what to do."""
        stamp = message.stamp
        differs = refused.reason is AbortReason.WRONG_MODEL and stamp.round == self.record.position
        if not isinstance(message, RoundOpened) or not differs or not self._server_gives:
            return []
        ours, theirs = shown_hash(self.state.hash), shown_hash(stamp.model_hash)
        told = f"another model: {self._me} holds {ours} at position {stamp.round}, the server {theirs}; {OTHER_MODEL}"
        return [Warned(told), Send(SERVER, Withdrawn(stamp, told))]

    def _require_judged(self, position: int) -> None:
        """Refuse a round at another position than the one that the session was judged for."""
        if position != self._began_at:
            raise Rejection(
                AbortReason.WRONG_ROUND,
                f"round {shown_number(position)} in a session that was opened to us at position {self._began_at}",
            )

    @property
    def _is_passed_on(self) -> bool:
        """Whether nobody uploads in this session: it is there to vote on a result that others verified."""
        return self._session is not None and self._session.supported is not None

    def take_parting_state(self, farewell: Farewell) -> list[Event]:
        """The last state, if we lack it: the one that we voted for, or else what the server has for us."""
        position = farewell.stamp.round
        if not self._server_gives or position <= self.record.position:
            return []
        took_part = self._took_part(farewell.certificate)
        won = self._member.won(position, farewell.certificate, took_part=took_part)
        if won is not None:
            return self._take_won(won)
        if not len(farewell.model):
            return []
        return self._adopt(farewell, farewell.certificate)

    def _adopt(self, given: RoundOpened | Farewell, certificate: Certificate | None) -> list[Event]:
        require_model_shape(given.model, self._dimension)
        memory = b"" if given.memory is None else given.memory.tobytes()
        stamp = given.stamp
        return self.take_over(
            self._member.adopted(
                certificate,
                GivenState(stamp.round, given.before, given.model, memory, stamp.model_hash),
                took_part=self._took_part(certificate),
            )
        )

    def _took_part(self, certificate: Certificate | None) -> bool:
        """Whether our own disk and the certificate agree that our update is in the sum."""
        if certificate is None or not self._participation.uploaded_at(certificate.position - 1):
            return False
        return self._me in certificate.ballot.survivors

    def require_cohort(self, cohort: Collection[PartyId]) -> None:
        """Refuse a cohort without enough of those who vote here: they are who remembers that we gave our update."""
        if self._session is None:
            return
        here = self.record.position
        known = self._session.voters(here) if here == self._began_at else frozenset(cohort)
        missing = self._member.missing_here(known.intersection(cohort))
        if missing:
            raise Rejection(
                AbortReason.NO_QUORUM,
                f"too few of those who vote take part; missing: {', '.join(missing[:10])}",
            )

    def require_list(self, survivors: Collection[PartyId]) -> None:
        """Refuse to sign a list that what the members stated forbids."""
        if self._rules is not None:
            self._rules.require_list(survivors)

    def take_over(self, record: ChainRecord) -> list[Event]:
        """Keep what others gave us, or proved: if it is the state that we voted for, the round is ours."""
        voted = self.record.next_state
        if voted is not None and record.certificate is not None and voted.hash == record.known_state.hash:
            return self._take_won(record)
        self._member.record = record
        return [ModelTaken(record.position, self.state.model, record)]

    def commit(self, record: ChainRecord) -> None:
        """The next position is new to everyone in the session: nothing was stated about it."""
        self._member.record = record
        self._rules = None


def _require_newest(session: Session, position: int) -> None:
    """Refuse a session that goes back behind one of its members: that one no longer says what it did here.

    A server that follows the protocol goes to the newest position that it was shown proof of, and lets no other in.
    """
    ahead = sorted(name for name, theirs in session.positions.items() if theirs > position)
    if ahead:
        raise Rejection(
            AbortReason.REPLAY,
            f"a session at position {position}, and {ahead[0]} holds {session.positions[ahead[0]]}",
        )


def _too_few_vote(missing: tuple[PartyId, ...], hellos: Mapping[PartyId, HelloRecord]) -> str:
    """Who lacks for a certificate: those who stay away, and those who are here and have forgotten what they did."""
    silent = [name for name in missing if name in hellos]
    away = [name for name in missing if name not in hellos]
    told = "too few of those who vote on the next model are here"
    if away:
        told += f"; missing: {', '.join(away[:10])}"
    if silent:
        told += f"; here without a vote, since their records are gone or behind: {', '.join(silent[:10])}"
    told += "; if that stays so, the organiser goes on with a checkpoint (veilsum roster checkpoint)"
    return told + (
        ", or begins another chain (veilsum roster sign --new-chain), after which all start with --fresh"
        if silent
        else ""
    )


def hash_held(model: Model | None, chain: ServerOnChain | None) -> bytes:
    """What rounds say of the model that they start from, where the server holds it."""
    if model is None:
        return b""
    return hash_model(model) if chain is None else chain.point().state.hash


def votes_not_shown() -> Failed:
    """Why results are not passed on for ever."""
    detail = "enough voted for a result that was passed on, and did not show it in their hellos, again and again; the "
    return Failed(AbortReason.TIMED_OUT, detail=f"{detail}organiser goes on with a checkpoint")


class ServerOnChain:
    """The server's part of the chain, in events."""

    def __init__(self, scheme: Scheme, rules: MachineRules, parts: RoleParts, begin: StartingPoint) -> None:
        record = begin.chain_record(rules.roster)
        self.keeper = ChainKeeper(chain_terms(scheme, rules), record, parts.chain_step)
        self._voters_of = voters_rule(rules.parameters, shares_follow_graph=scheme.shares_follow_graph)
        self._passes_on = scheme.passes_on
        self._in_vain_at = -1

    @property
    def record(self) -> ChainRecord:
        return self.keeper.record

    def point(self) -> ChainPoint:
        return self.keeper.point()

    def open(self) -> None:
        self.keeper.forget_votes()

    def admit(self, sender: PartyId, hello: Hello) -> None:
        """Take in what a hello proves, or raise and change nothing."""
        self.keeper.admit(sender, hello.hello.rounds_done, hello.certificate, hello.vote)

    @property
    def may_pass_on(self) -> bool:
        """Whether votes may be all that a result lacks: then everyone who has one is welcome."""
        return self._passes_on and self.keeper.may_pass_on

    def supported(self, hellos: Mapping[PartyId, HelloRecord]) -> SupportedBallot | None:
        """The result that these can vote on without another sum, if there is one.

        Where that was tried in vain, because some do not vote, another sum is tried if it can be.
        """
        position, hides = self.keeper.newest_position(), self.keeper.terms.hides_hashes
        if not self.may_pass_on or (self._in_vain_at == position and self._barrier(hellos) is None):
            return None
        voting = voters_among(hellos, position)
        return self.keeper.supported(
            {name for name in voting if not hides or hellos[name].rounds_done == position}
        )

    def note_in_vain(self) -> None:
        """A session passed a result on, and too few voted for it."""
        self._in_vain_at = self.keeper.record.position

    def no_quorum(self, hellos: Mapping[PartyId, HelloRecord]) -> Failed | None:
        """Why those who are here could certify nothing, if so."""
        return None if self.supported(hellos) is not None else self._barrier(hellos)

    def _barrier(self, hellos: Mapping[PartyId, HelloRecord]) -> Failed | None:
        """Why no sum of these could be certified, if so."""
        keeper, position = self.keeper, self.keeper.newest_position()
        voting = voters_among(hellos, position)
        missing = keeper.missing_voters(voting)
        if not missing:
            barred = self._barred(hellos, position)
            return next(iter(barred.values())) if keeper.missing_voters(voting - barred.keys()) else None
        return Failed(AbortReason.NO_QUORUM, detail=_too_few_vote(missing, hellos))

    def can_certify(self, voting: Collection[PartyId]) -> bool:
        """Whether these are enough of those who vote on the next model."""
        record = self.keeper.record
        return not self.keeper.terms.missing_voters(record.position, record.certificate, voting)

    def _barred(self, hellos: Mapping[PartyId, HelloRecord], position: int) -> dict[PartyId, Failed]:
        """Who of these will not give its update, by what all of them say of earlier attempts, and why."""
        recovery = self.keeper.terms.parameters.recovery
        said, barred = statements_among(hellos, position, recovery), {}
        if not any(one.attempts for one in said.values()):
            return {}
        for name in hellos:
            try:
                PositionRules.of(name, self._voters_of, said).require_upload(position)
            except Rejection as refusal:
                barred[name] = failure_of(refusal)
        return barred

    def catch_up(
        self, hellos: Mapping[PartyId, HelloRecord], own: ParticipationRecord, attempt: int
    ) -> list[Event]:
        """Go to the newest position that the hellos prove; a round that was certified without us is committed now.

        What `own` no longer says of a sum that may be open there, the hellos say with our signature.
        """
        record, committed = self.keeper.caught_up(), list[Event]()
        if record is not None:
            self.keeper.record, certificate, state = record, record.certificate, record.state
            assert certificate is not None
            known, model = (state.hash, state.model) if state is not None else (b"", None)
            survivors = certificate.ballot.survivors
            committed = [RoundCommitted(record.position - 1, 0, survivors, known, model, chain=record)]
        here = self.record.position
        released = proven_release(hellos, here, self.keeper.terms.parameters.colluders)
        if released is None or own.cohort_of(here) is not None:
            return committed
        stamp = Stamp(released.session, here, attempt)
        return [*committed, own.spend(stamp, released.released, released.members)]

    def stating(self, session: Session) -> Session:
        """A session as we open it: with what proves its position, and the result that it passes on, if it does."""
        supported = self.supported(session.hellos)
        return replace(session, certificate=self.record.certificate, supported=supported)

    def behind(self, session: Session) -> frozenset[PartyId]:
        """Members that say they have fewer rounds, and whose vote does not show that they have the state."""
        certificate = self.record.certificate
        voted = certificate.signatures if certificate is not None else {}
        position = self.record.position
        return frozenset(
            name
            for name, theirs in session.positions.items()
            if theirs != position and not (name in voted and theirs == position - 1)
        )

    def commit(self, record: ChainRecord) -> Certificate | None:
        """Keep the position that was reached; returns what proves it."""
        self.keeper.record = record
        return record.certificate
