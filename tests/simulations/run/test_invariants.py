"""The invariants that every simulation is watched for: each one is seen when it breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from veilsum import FederationConfig, simulate
from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.decisions import Decision, RoundSpent, UpdateGiven, VoteCast
from veilsum.protocol.machines.events import DecisionMade, RoundCommitted, SessionBegan
from veilsum.protocol.schemes.ampc.messages import ResultDigest
from veilsum.protocol.secure_sum import verification
from veilsum.protocol.secure_sum.shares import ReleasedShares, SealedShares, ShareKeeper
from veilsum.protocol.secure_sum.survivors import SurvivorList, SurvivorProof
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message, Stamp, message
from veilsum.simulations.run.invariants import InvariantMonitor, InvariantViolated, TagRecorder

ALICE, BOB, CAROL = PartyId("alice"), PartyId("bob"), PartyId("carol")
SESSION = bytes(32)


def released(
    attempt: int = 0, *, self_masks: tuple[PartyId, ...] = (), keys: tuple[PartyId, ...] = ()
) -> ReleasedShares:
    return ReleasedShares(
        Stamp(SESSION, 0, attempt), dict.fromkeys(self_masks, bytes(33)), dict.fromkeys(keys, bytes(33))
    )


def in_session() -> InvariantMonitor:
    """A monitor that has heard everyone enter a session."""
    monitor = InvariantMonitor()
    for name in (ALICE, BOB, CAROL, SERVER):
        monitor.noted(0.0, name, SessionBegan(SESSION, (ALICE, BOB, CAROL)))
    return monitor


def spent(round_number: int, attempt: int) -> Decision:
    return RoundSpent(round_number, attempt, frozenset({ALICE, BOB}), frozenset({ALICE, BOB}))


def given(round_number: int, attempt: int) -> Decision:
    return UpdateGiven(round_number, attempt, b"model", b"update")


def stated(round_number: int, attempt: int) -> Decision:
    return VoteCast(round_number, attempt, ChainRecord(round_number))


def decide(
    monitor: InvariantMonitor, party: PartyId, decision: Callable[[int, int], Decision], attempt: int = 0
) -> None:
    monitor.noted(0.0, party, DecisionMade(decision(0, attempt)))


def ask(monitor: InvariantMonitor, attempt: int = 0, survivors: tuple[PartyId, ...] = (ALICE, BOB)) -> None:
    listed = SurvivorList(Stamp(SESSION, 0, attempt), survivors, (), len(survivors))
    monitor.sent(0.0, SERVER, ALICE, listed, 0)


def upload(attempt: int = 0, word: int = 0) -> MaskedInput:
    return MaskedInput(Stamp(SESSION, 0, attempt), np.full(3, word, dtype="<u8"))


def decided(attempts: int = 1) -> InvariantMonitor:
    """A monitor to whom ALICE has stated that she gives her update of round 0 and releases shares of it.

    The server has decided, too, and asked her.
    """
    monitor = in_session()
    for attempt in range(attempts):
        decide(monitor, ALICE, given, attempt)
        decide(monitor, ALICE, spent, attempt)
        decide(monitor, SERVER, spent, attempt)
        ask(monitor, attempt)
    return monitor


def broken_by(monitor: InvariantMonitor, message: Message) -> str:
    """Which invariant it breaks that ALICE sends this."""
    with pytest.raises(InvariantViolated) as caught:
        monitor.sent(0.0, ALICE, SERVER, message, 0)
    return violated(caught)


def violated(caught: pytest.ExceptionInfo[InvariantViolated]) -> str:
    return caught.value.name


def test_two_results_of_one_round_break_i3() -> None:
    monitor = decided()
    monitor.noted(0.0, ALICE, RoundCommitted(0, 0, (ALICE, BOB), b"one"))
    with pytest.raises(InvariantViolated) as caught:
        monitor.noted(0.0, BOB, RoundCommitted(0, 0, (ALICE, BOB), b"two"))
    assert violated(caught) == "I3"


def test_both_share_kinds_break_i4() -> None:
    monitor = decided()
    monitor.sent(0.0, ALICE, SERVER, released(self_masks=(BOB,)), 0)
    with pytest.raises(InvariantViolated) as caught:
        monitor.sent(0.0, ALICE, SERVER, released(keys=(BOB,)), 0)
    assert violated(caught) == "I4"


def test_shares_for_two_survivor_lists_of_a_round_break_i4() -> None:
    """For the same list again they do not: it opens the same sum."""
    monitor = decided(attempts=2)
    for party in (ALICE, SERVER):
        decide(monitor, party, spent, 2)
    ask(monitor, 2, (ALICE, BOB, CAROL))
    monitor.sent(0.0, ALICE, SERVER, released(0, self_masks=(BOB,)), 0)
    monitor.sent(0.0, ALICE, SERVER, released(1, self_masks=(BOB,)), 0)
    with pytest.raises(InvariantViolated) as caught:
        monitor.sent(0.0, ALICE, SERVER, released(2, self_masks=(BOB,)), 0)
    assert violated(caught) == "I4"


def test_two_uploads_in_one_attempt_break_i5() -> None:
    monitor = decided()
    monitor.sent(0.0, ALICE, SERVER, MaskedInput(Stamp(SESSION), np.zeros(3, dtype="<u8")), 0)
    with pytest.raises(InvariantViolated) as caught:
        monitor.sent(0.0, ALICE, SERVER, MaskedInput(Stamp(SESSION), np.ones(3, dtype="<u8")), 0)
    assert violated(caught) == "I5"


def test_a_round_committed_twice_breaks_i6() -> None:
    monitor = decided()
    monitor.noted(0.0, ALICE, RoundCommitted(1, 0, (ALICE, BOB), b"one"))
    with pytest.raises(InvariantViolated) as caught:
        monitor.noted(0.0, ALICE, RoundCommitted(1, 0, (ALICE, BOB), b"one"))
    assert violated(caught) == "I6"


def test_another_set_of_a_round_breaks_i3_even_where_the_model_is_not_known() -> None:
    monitor = decided()
    monitor.noted(0.0, ALICE, RoundCommitted(0, 0, (ALICE, BOB), b""))
    with pytest.raises(InvariantViolated) as caught:
        monitor.noted(0.0, BOB, RoundCommitted(0, 0, (ALICE, CAROL), b""))
    assert violated(caught) == "I3"


def test_shares_that_leave_before_the_decision_to_spend_the_round_break_i4() -> None:
    monitor = in_session()
    decide(monitor, ALICE, given)
    decide(monitor, SERVER, spent)
    ask(monitor)
    assert broken_by(monitor, released(self_masks=(BOB,))) == "I4"


def test_an_upload_that_leaves_before_the_decision_to_give_it_breaks_i5() -> None:
    monitor = in_session()
    decide(monitor, BOB, given)
    assert broken_by(monitor, upload()) == "I5"


def test_decisions_about_one_attempt_allow_nothing_in_the_next() -> None:
    monitor = decided()
    decide(monitor, SERVER, spent, 1)
    ask(monitor, 1)
    assert broken_by(monitor, released(1, self_masks=(BOB,))) == "I4"
    assert broken_by(monitor, upload(1)) == "I5"


def test_decisions_of_an_earlier_session_allow_nothing_in_this_one() -> None:
    """A server that starts again counts its attempts anew."""
    monitor = decided()
    later = Stamp(bytes([1]) * 32)
    for name in (ALICE, SERVER):
        monitor.noted(0.0, name, SessionBegan(later.session, (ALICE, BOB)))
    assert broken_by(monitor, replace(upload(), stamp=later)) == "I5"
    assert broken_by(monitor, replace(released(), stamp=later)) == "I4"


def test_an_upload_without_shares_that_leaves_before_the_round_is_spent_breaks_i4() -> None:
    """Nothing else will be asked of her before a sum with it is open; with shares there will."""
    monitor = in_session()
    decide(monitor, ALICE, given)
    assert broken_by(monitor, upload()) == "I4"
    monitor = in_session()
    decide(monitor, ALICE, given)
    monitor.sent(0.0, ALICE, SERVER, SealedShares(Stamp(SESSION), {}, {}, bytes(32), bytes(64)), 0)
    monitor.sent(0.0, ALICE, SERVER, upload(), 0)


@message("invariants.outcome")
@dataclass(frozen=True, slots=True)
class Outcome(Message):
    """The result of a scheme that nobody here knows."""

    states_result = True

    stamp: Stamp


@pytest.mark.parametrize(
    "told",
    [ResultDigest(Stamp(SESSION), bytes(32), bytes(64), bytes(80)), Outcome(Stamp(SESSION))],
)
def test_a_result_that_is_told_before_it_is_stated_breaks_i3(told: Message) -> None:
    """Of whatever scheme: the message says that it states a result."""
    monitor = in_session()
    decide(monitor, BOB, stated)
    decide(monitor, ALICE, stated, 1)
    assert broken_by(monitor, told) == "I3"
    decide(monitor, ALICE, stated)
    monitor.sent(0.0, ALICE, BOB, told, 0)


@pytest.mark.parametrize("asked_first", [True, False])
def test_shares_that_the_server_asked_for_before_its_decision_break_i4(asked_first: bool) -> None:
    monitor = in_session()
    decide(monitor, ALICE, spent)
    if asked_first:
        ask(monitor)
    decide(monitor, SERVER, spent, 0 if asked_first else 1)
    if not asked_first:
        ask(monitor)
    assert broken_by(monitor, released(self_masks=(BOB,))) == "I4"


def test_a_list_that_is_only_proposed_needs_no_decision_of_the_server() -> None:
    """It decides when the votes are in, and asks with the proof."""
    monitor = in_session()
    ask(monitor)
    decide(monitor, SERVER, spent)
    monitor.sent(0.0, SERVER, ALICE, SurvivorProof(Stamp(SESSION), {}), 0)
    decide(monitor, ALICE, spent)
    monitor.sent(0.0, ALICE, SERVER, released(self_masks=(BOB,)), 0)


def test_a_simulation_that_seals_twice_under_one_key_and_nonce_ends_with_i9(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ShareKeeper, "_box_secret", lambda *_: Secret(bytes(32)))
    with pytest.raises(InvariantViolated) as caught:
        simulate(FederationConfig(scheme="masked", task="vectors:5", rounds=1))
    assert caught.value.name == "I9"


def test_another_tag_under_one_key_breaks_i10_and_neither_the_same_again_nor_a_lie_does() -> None:
    recorder = TagRecorder()
    for key, tag in [(b"a", b"1"), (b"b", b"2"), (b"a", b"1")]:
        recorder(Secret(key), tag)
    recorder.require_one_update_each()
    assert len(recorder) == 2
    with recorder.looking_away():
        recorder(Secret(b"b"), b"1")
    recorder.require_one_update_each()
    recorder(Secret(b"b"), b"1")
    with pytest.raises(InvariantViolated) as caught:
        recorder.require_one_update_each()
    assert caught.value.name == "I10"


@pytest.mark.parametrize("scheme", ["masked", "mpc", "ampc"])
def test_a_simulation_whose_keys_of_tags_outlive_their_attempt_ends_with_i10(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "attempt_key", lambda *_: Secret(bytes(32)))
    with pytest.raises(InvariantViolated) as caught:
        simulate(FederationConfig(scheme=scheme, task="vectors:5", rounds=2))
    assert caught.value.name == "I10"
