"""Training on a perturbed model, message by message: what is refused, what is repeated, and what never travels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.support.tables.lying_shares import named_by
from veilsum.protocol.chain.state import hash_model
from veilsum.protocol.errors import AbortReason, RemoteProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RoundFailed, RunFailed, RunFinished, Warned
from veilsum.protocol.machines.session import Farewell, RoundClosed, RoundOpened
from veilsum.protocol.numbers.model import LocalResult, Model
from veilsum.protocol.perturbation.contract import ExchangeReply, ExchangeRequest, RecoveredMean
from veilsum.protocol.perturbation.draws import Reals
from veilsum.protocol.perturbation.errors import ExchangeOverflow, PrecisionLost, TermTooLarge
from veilsum.protocol.randomness import RandomBytes
from veilsum.protocol.schemes.perturbed.messages import (
    PerturbationAnnounced,
    PerturbedTerms,
    SoftmaxReply,
    SoftmaxRequest,
)
from veilsum.protocol.wire.messages import Message
from veilsum.simulations.testing import InFlight, Table, check_invariants
from veilsum.simulations.testing.perturbation import TablePerturbation, TableServerPerturbation

P1 = PartyId("p1")
BOTH = pytest.mark.parametrize("scheme", ["perturbed", "bilateral"])


def until(table: Table, kind: type[Message], sender: str, receiver: str) -> InFlight:
    """Deliver in order until such a message is on the wire."""
    table.start()
    while True:
        for flight in table.wire:
            if (type(flight.message), flight.sender, flight.receiver) == (kind, sender, receiver):
                return flight
        table.deliver(table.wire[0])


def deliver_before(table: Table, flight: InFlight) -> None:
    """Everything that its receiver was sent earlier."""
    for earlier in list(table.wire):
        if earlier is flight:
            return
        if earlier.receiver == flight.receiver:
            table.deliver(earlier)


def say_instead(table: Table, flight: InFlight, message: Message) -> RemoteProtocolError | None:
    table.drop(flight)
    return table.deliver(table.inject(flight.sender, flight.receiver, message))


def changed(terms: PerturbedTerms, position: int, value: float) -> PerturbedTerms:
    vector = np.array(terms.terms)
    vector[position] = value
    return replace(terms, terms=vector)


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (lambda m: replace(m, key_id=bytes(16)), AbortReason.WRONG_ROUND),
        (lambda m: replace(m, public_digest=bytes(32)), AbortReason.WRONG_CONFIG),
        (lambda m: replace(m, terms=m.terms[:-1]), AbortReason.BAD_VECTOR),
        (lambda m: replace(m, terms=m.terms.astype("<f8")), AbortReason.BAD_VECTOR),
        (lambda m: changed(m, 0, np.nan), AbortReason.BAD_VECTOR),
        (lambda m: changed(m, -1, np.inf), AbortReason.BAD_VECTOR),
        (lambda m: replace(m, samples=0), AbortReason.OVER_BUDGET),
        (lambda m: replace(m, samples=10**6), AbortReason.OVER_BUDGET),
    ],
)
def test_terms_of_a_stale_key_another_partition_or_a_wrong_shape_are_refused_and_their_party_left_out(
    lie: Callable[[PerturbedTerms], PerturbedTerms], reason: AbortReason
) -> None:
    table = Table.build("perturbed", 4, rounds=1)
    flight = until(table, PerturbedTerms, "p1", SERVER)
    assert isinstance(flight.message, PerturbedTerms)
    error = say_instead(table, flight, lie(flight.message))
    assert error is not None
    assert (error.culprit, error.reason) == ("p1", reason)
    table.run()
    assert [commit.members for name, commit in table.trace.commits if name == SERVER] == [("p0", "p2", "p3")]
    check_invariants(table)


@BOTH
def test_a_question_is_asked_once_with_the_rounds_key_and_finite_numbers(scheme: str) -> None:
    table = Table.build(scheme, 4, rounds=1)
    flight = until(table, SoftmaxRequest, "p1", SERVER)
    asked = flight.message
    assert isinstance(asked, SoftmaxRequest)
    request = asked.question
    lies = {
        AbortReason.WRONG_ROUND: replace(request, key_id=bytes(16)),
        AbortReason.BAD_VECTOR: replace(request, values=np.full_like(request.values, np.nan)),
    }
    for reason, lie in lies.items():
        error = table.deliver(table.inject("p1", SERVER, replace(asked, question=lie)))
        assert error is not None
        assert (error.culprit, error.reason) == ("p1", reason)
    assert table.deliver(flight) is None
    repeated = table.deliver(table.inject("p1", SERVER, asked))
    assert repeated is not None
    assert repeated.reason is AbortReason.REPLAY
    table.run()
    assert all(isinstance(ending, RunFinished) for ending in table.trace.endings.values())


@BOTH
def test_where_nothing_is_to_be_asked_a_question_is_refused(scheme: str) -> None:
    request = until(Table.build(scheme, 4, rounds=1), SoftmaxRequest, "p1", SERVER).message
    silent = Table.build(scheme, 4, rounds=1, options={"asks": "no"})
    until(silent, PerturbationAnnounced, SERVER, "p1")
    stamped = replace(request, stamp=silent.stamp_of(SERVER))
    error = silent.deliver(silent.inject("p1", SERVER, stamped))
    assert error is not None
    assert error.reason is AbortReason.UNEXPECTED_MESSAGE


@BOTH
def test_a_client_believes_a_perturbation_and_answers_of_the_server_alone_and_once(scheme: str) -> None:
    table = Table.build(scheme, 4, rounds=1)
    announced = until(table, PerturbationAnnounced, SERVER, "p1")
    deliver_before(table, announced)
    assert isinstance(announced.message, PerturbationAnnounced)
    other_kind = replace(announced.message, public=replace(announced.message.public, loss="mse"))
    error = table.deliver(table.inject(SERVER, "p1", other_kind))
    assert error is not None
    assert error.reason is AbortReason.WRONG_CONFIG
    error = table.deliver(table.inject("p2", "p1", announced.message))
    assert error is not None
    assert error.culprit == "p2"
    assert table.deliver(announced) is None
    assert table.deliver(table.inject(SERVER, "p1", announced.message)) is not None
    while not any(isinstance(f.message, SoftmaxReply) and f.receiver == "p1" for f in table.wire):
        table.deliver(table.wire[0])
    reply = next(f for f in table.wire if isinstance(f.message, SoftmaxReply) and f.receiver == "p1")
    assert isinstance(reply.message, SoftmaxReply)
    stale = replace(reply.message, answer=replace(reply.message.answer, key_id=bytes(16)))
    error = table.deliver(table.inject(SERVER, "p1", stale))
    assert error is not None
    assert (error.culprit, error.reason) == (SERVER, AbortReason.WRONG_ROUND)
    assert table.deliver(reply) is None
    assert table.deliver(table.inject(SERVER, "p1", reply.message)) is not None
    table.run()
    assert table.server.rounds_done == 1


@BOTH
def test_neither_the_true_model_nor_its_hash_ever_leaves_the_server(scheme: str) -> None:
    table = Table.build(scheme, 4, rounds=3)
    table.start()
    table.run()
    models = [c.model for name, c in table.trace.commits if name == SERVER]
    true = {hash_model(model) for model in models if model is not None}
    assert len(true) == 3
    for flight in table.trace.sent:
        message = flight.message
        assert message.stamp.model_hash not in true
        if isinstance(message, RoundOpened | Farewell):
            assert hash_model(message.model) not in true
        if isinstance(message, RoundClosed):
            assert message.next_model_hash == b""


@BOTH
def test_every_attempt_has_a_key_of_its_own(scheme: str) -> None:
    table = Table.build(scheme, 4, rounds=3)
    table.start()
    table.run()
    sent = [
        flight.message for flight in table.trace.sent if isinstance(flight.message, PerturbationAnnounced)
    ]
    assert len({message.public.key_id for message in sent}) == 3


def losing_precision_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first recovery finds nothing but rounding."""
    truly, calls = TablePerturbation.recover, []

    def recover(self: TablePerturbation, terms: Reals) -> RecoveredMean:
        calls.append(1)
        if len(calls) == 1:
            raise PrecisionLost(1e9, 100.0, 25.0)
        return truly(self, terms)

    monkeypatch.setattr(TablePerturbation, "recover", recover)


def test_a_round_that_lost_all_precision_is_repeated_with_less_perturbation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    losing_precision_once(monkeypatch)
    table = Table.build("perturbed", 4, rounds=1)
    table.start()
    table.run()
    failures = [one.event for one in table.trace.entries if isinstance(one.event, RoundFailed)]
    assert failures[0].reason is AbortReason.PRECISION_LOST
    assert "25" in failures[0].detail
    (commit,) = [commit for name, commit in table.trace.commits if name == SERVER]
    assert commit.attempt == 1
    check_invariants(table)


@BOTH
def test_an_answer_that_overflows_ends_the_attempt_and_the_next_is_perturbed_less(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    truly, calls, adapted = TablePerturbation.answer, [], []

    def answer(self: TablePerturbation, request: ExchangeRequest, random: RandomBytes) -> ExchangeReply:
        calls.append(1)
        if len(calls) == 1:
            raise ExchangeOverflow(50.0, 36.0)
        return truly(self, request, random)

    monkeypatch.setattr(TablePerturbation, "answer", answer)
    monkeypatch.setattr(TableServerPerturbation, "adapt", lambda self, condition: adapted.append(condition))
    table = Table.build(scheme, 4, rounds=1)
    table.start()
    table.run()
    failures = [
        one.event for one in table.trace.entries if one.party == SERVER and isinstance(one.event, RoundFailed)
    ]
    assert [failure.reason for failure in failures] == [AbortReason.PRECISION_LOST]
    assert adapted[0] == np.inf
    assert table.server.rounds_done == 1
    check_invariants(table)


def test_under_masks_the_opened_round_is_closed_without_a_step_instead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Repeating it would open a second sum of the same gradients."""
    losing_precision_once(monkeypatch)
    table = Table.build("bilateral", 4, rounds=2)
    table.start()
    table.run()
    first, second = [commit for name, commit in table.trace.commits if name == SERVER]
    assert first.model is not None and not first.model.any()
    assert second.model is not None and second.model.any()
    warned = [one.event.text for one in table.trace.entries if isinstance(one.event, Warned)]
    assert any("without a step" in text and "25" in text for text in warned)


def test_clients_told_different_partitions_share_no_masks_so_no_sum_is_opened() -> None:
    """Nor is one of them named for it: boxes are bound to the attempt, not to what the server said."""
    table = Table.build("bilateral", 4, rounds=1)
    flight = until(table, PerturbationAnnounced, SERVER, "p1")
    assert isinstance(flight.message, PerturbationAnnounced)
    other = replace(flight.message.public, partition=np.ones(1, dtype="<u4"))
    deliver_before(table, flight)
    assert say_instead(table, flight, replace(flight.message, public=other)) is None
    table.run()
    ending = table.trace.endings[SERVER]
    assert isinstance(ending, RunFailed)
    assert (ending.reason, ending.culprit) == (AbortReason.CHECK_FAILED, "")
    assert not named_by(table, SERVER, *table.participants)
    assert table.server.model is not None and not table.server.model.any()


def test_every_term_and_the_weight_have_mask_streams_of_their_own() -> None:
    table = Table.build("bilateral", 4, rounds=1)
    table.start()
    table.run()
    uses = [use for use in table.trace.key_uses if use.party == P1]
    streams, partners, own = 3, 3, 1
    assert len({use.key for use in uses}) == len(uses) == streams * (partners + own)


class Loud:
    """A learner whose first party trains values that no word holds."""

    def train(self, party: PartyId, round: int, model: Model) -> LocalResult:
        value = 1e12 if party == P1 else 0.5
        return LocalResult(np.full(len(model), value, dtype=np.float32), 10)


def test_a_client_whose_term_is_out_of_range_withdraws_and_says_which(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    adapted: list[float] = []
    monkeypatch.setattr(TableServerPerturbation, "adapt", lambda self, condition: adapted.append(condition))
    table = Table.build("bilateral", 5, rounds=1, learner=Loud())
    table.start()
    table.run()
    told = [
        one.event.detail
        for one in table.trace.entries
        if one.party == P1 and isinstance(one.event, RoundFailed)
    ]
    assert any("term gradient" in text and "smaller gamma" in text for text in told)
    warned = [one.event.text for one in table.trace.entries if isinstance(one.event, Warned)]
    assert f"{P1} withdrew: {TermTooLarge.told}" in warned
    assert adapted.count(np.inf) == 1
    (commit,) = [commit for name, commit in table.trace.commits if name == SERVER]
    assert P1 not in commit.members
