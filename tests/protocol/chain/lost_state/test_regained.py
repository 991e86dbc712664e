"""What a keeper of the chain takes back, and from whom: five parties, of whom one may collude."""

from __future__ import annotations

import numpy as np

from tests.protocol.chain.test_sessions_on_chain import (
    NAMES,
    anchor,
    ballot,
    certificate,
    hello,
    keeper_of,
    record_at,
    state,
    vote,
)
from tests.support.refusals import refusal
from veilsum.protocol.chain.hellos import HelloRecord, proven_release
from veilsum.protocol.chain.keeper import ChainKeeper
from veilsum.protocol.chain.state import ChainState
from veilsum.protocol.chain.statements import EnteredAttempt
from veilsum.protocol.chain.votes import Ballot, Certificate
from veilsum.protocol.errors import AbortReason, Rejection

REASON = AbortReason


def test_a_server_that_holds_the_model_goes_on_with_the_state_that_it_kept_or_lacks_the_certified_one() -> (
    None
):
    kept = state(1, 1)
    keeper = keeper_of(record_at(0).voting(None, None, kept))
    keeper.admit(NAMES[0], 1, certificate(1, 1), None)
    reached = keeper.caught_up()
    assert reached is not None
    assert reached.known_state is kept
    assert keeper.lacking() is None
    for shown in (certificate(1, 2), certificate(2, 1)):
        behind = keeper_of(record_at(0).voting(None, None, kept))
        behind.admit(NAMES[0], shown.position, shown, None)
        assert behind.caught_up() is None
        lacking = behind.lacking()
        assert lacking is not None
        assert (lacking.position, lacking.hash) == (shown.position, shown.ballot.after)


def behind_by_two(memory: bytes = b"") -> tuple[ChainKeeper, ChainState]:
    """A server that knows the first model, and the state of position 2, which the others hold."""
    there = state(2, 1, memory)
    proof = Ballot(2, there.before, there.hash, NAMES, NAMES)
    keeper = keeper_of(record_at(0))
    votes = {name: vote(name, proof).signature for name in NAMES}
    keeper.admit(NAMES[0], 2, Certificate(proof, votes), None)
    return keeper, there


def test_a_state_that_was_lost_is_taken_back_only_if_it_is_the_certified_one_with_its_memory() -> None:
    keeper, there = behind_by_two(b"momentum")
    known = keeper.record
    chain, before, model = anchor().chain, there.before, there.model
    for wrong in (
        ChainState.of(chain, 2, before, model + np.float32(1), b"momentum"),
        ChainState.of(chain, 2, before, model, b""),
        ChainState.of(chain, 2, bytes(32), model, b"momentum"),
        ChainState.of(bytes(32), 2, before, model, b"momentum"),
        state(1, 1),
    ):
        with refusal(Rejection, reason=REASON.WRONG_MODEL):
            keeper.regained(wrong)
        assert keeper.record is known
    found = keeper.regained(there)
    assert found.position == 2
    assert found.known_state is there
    assert found.certificate == keeper.certified()


def test_those_are_asked_for_a_state_who_say_to_hold_it_or_voted_for_it() -> None:
    """The others say an earlier position, or voted for something else."""
    after = ballot(1)
    keeper = keeper_of(record_at(0, held=False))
    hellos = {name: hello(0) for name in NAMES}
    for name in NAMES[:4]:
        keeper.admit(name, 0, None, vote(name, after))
    lacking = keeper.lacking()
    assert lacking is not None
    assert keeper.holders(lacking, hellos) == set(NAMES[:4])
    assert keeper.holders(lacking, hellos | {NAMES[4]: hello(1)}) == set(NAMES)
    assert keeper.holders(lacking, {NAMES[4]: hello(0)}) == set()


def test_a_list_is_proved_by_one_more_statement_than_may_lie_and_at_its_position_alone() -> None:
    """Another list, other members or another attempt are other statements, and do not add up."""
    one = EnteredAttempt(bytes(32), 0, NAMES, True, NAMES[:4])
    others = (
        EnteredAttempt(bytes(32), 0, NAMES, True, NAMES[1:]),
        EnteredAttempt(bytes(32), 0, NAMES[:4], True, NAMES[:4]),
        EnteredAttempt(bytes(32), 1, NAMES, True, NAMES[:4]),
        EnteredAttempt(bytes(32), 0, NAMES, True),
    )
    stating = {name: HelloRecord(bytes(32), bytes(32), 3, bytes(64), False, (one,)) for name in NAMES[:2]}
    assert proven_release(stating, 3, 1) == one
    assert proven_release(stating, 3, 2) is None
    assert proven_release(stating, 4, 1) is None
    for other in others:
        divided = stating | {NAMES[1]: HelloRecord(bytes(32), bytes(32), 3, bytes(64), False, (other,))}
        assert proven_release(divided, 3, 1) is None
