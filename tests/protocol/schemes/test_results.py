"""Every secure scheme gives the same bytes as an exact fixed-point average, however its parties come and go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.refusals import refusal
from tests.support.tables.lying_table import (
    exact_model,
    fix_input,
    lose_before,
    lying_table,
    make_identities,
    messages,
    new_machine,
    nobody_has_a_result,
    participant,
    party_names,
    step,
    told,
    until,
)
from veilsum.protocol.agreed.parameters import (
    Bias,
    Differencing,
    Parameters,
    Recovery,
    Rekey,
    ShareMode,
    Weights,
)
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.agreed.threat import Threat
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.errors import AbortReason, LocalProtocolError, ParameterError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RunFailed, RunFinished
from veilsum.protocol.machines.session import SessionOpened
from veilsum.protocol.numbers.fixedpoint import plan
from veilsum.protocol.numbers.model import LocalResult
from veilsum.protocol.schemes.ampc.messages import ModelGiven, SeedsForNeighbour, SeedsRevealed, ShareVector
from veilsum.protocol.schemes.registry import find_scheme
from veilsum.protocol.secure_sum.shares import ReleasedShares, SealedShares
from veilsum.protocol.secure_sum.survivors import SurvivorSignature
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message
from veilsum.simulations.testing.federation import MAX_WEIGHT, TableFederation
from veilsum.simulations.testing.table import Table
from veilsum.simulations.testing.trace import InFlight

SECURE = ("masked", "mpc", "ampc")
PEERS = ("mpc", "ampc")
REASON = AbortReason


def models(table: Table, round_number: int = 0) -> set[bytes]:
    """The models after a round, wherever they are held."""
    return {
        commit.model.tobytes()
        for _, commit in table.trace.commits
        if commit.round == round_number and commit.model is not None
    }


numbers = st.floats(-8, 8, width=32)


@st.composite
def runs(draw: st.DrawFn) -> Table:
    parties = draw(st.integers(3, 6))
    graph = draw(st.sampled_from(["complete", "ring", "k-regular:2"]))
    table = lying_table(
        draw(st.sampled_from(SECURE)),
        parties,
        dimension=3,
        bits=draw(st.sampled_from([32, 64])),
        graph=graph,
        threat=draw(st.sampled_from(list(Threat))),
        seed=draw(st.integers(0, 3)),
    )
    for name in table.participants:
        payload = np.array(draw(st.lists(numbers, min_size=3, max_size=3)), dtype=np.float32)
        fix_input(table, name, 0, LocalResult(payload, draw(st.integers(1, MAX_WEIGHT))))
    return table


@settings(max_examples=15)
@given(runs())
def test_the_model_is_the_exact_fixed_point_average(table: Table) -> None:
    """Random inputs, weights, graphs, words of 32 and 64 bits; one model, held by all who hold it."""
    table.run()
    assert models(table) == {exact_model(table, table.participants)}


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("bits", [32, 64])
def test_after_dropouts_the_model_is_the_exact_average_of_the_survivors(
    scheme: str, lost: int, bits: int
) -> None:
    """In the same attempt, without asking anyone to train again."""
    table = lying_table(scheme, 8, bits=bits)
    lose_before(table, MaskedInput, *table.participants[:lost]).run()
    assert models(table) == {exact_model(table, table.participants[lost:])}
    assert [commit.attempt for commit in told(table, SERVER).commits] == [0]


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("kind", [SealedShares, SurvivorSignature, ReleasedShares, SeedsRevealed])
def test_a_party_that_vanishes_at_any_phase_costs_no_exactness(scheme: str, kind: type[Message]) -> None:
    table = lying_table(scheme, 8)

    def tamper(flight: InFlight) -> Message | None:
        if isinstance(flight.message, MaskedInput) and flight.sender == "p5" and kind is SeedsRevealed:
            table.crash("p5")
        if isinstance(flight.message, kind) and flight.sender == "p0":
            table.crash("p0")
            return None
        return flight.message if flight.sender not in table.crashed else None

    table.tamper = tamper
    table.run()
    members = told(table, SERVER).commits[0].members
    assert len(members) >= 4
    assert models(table) == {exact_model(table, members)}


@pytest.mark.parametrize("payload", ["model", "delta", "gradient"])
def test_payloads_are_applied_alike_by_all_schemes(payload: str) -> None:
    """After two rounds masked, mpc and ampc hold the same bytes."""
    held = [models(lying_table(scheme, 4, rounds=2, payload=payload).run(), 1) for scheme in SECURE]
    assert held[0] == held[1] == held[2]
    assert len(held[0]) == 1


def ampc(**fields: Any) -> Table:
    return lying_table("ampc", 5, rounds=2, **fields)


@pytest.mark.parametrize("graph", ["complete", "ring"])
@pytest.mark.parametrize("lost", [(), ("p2",)])
def test_seeds_and_tensors_give_the_same_bytes(graph: str, lost: tuple[str, ...]) -> None:
    seeded, tensor = (
        lose_before(ampc(graph=graph, share_mode=mode), MaskedInput, *lost).run() for mode in ShareMode
    )
    assert [models(seeded, at) for at in (0, 1)] == [models(tensor, at) for at in (0, 1)]
    assert messages(tensor, ShareVector)
    assert not messages(seeded, ShareVector)


@pytest.mark.parametrize("parties", [4, 5])
def test_own_and_common_bias_give_the_same_bytes(parties: int) -> None:
    own, common = (
        lying_table("ampc", parties, recovery=Recovery.NONE, bias=bias).run()
        for bias in (Bias.OWN, Bias.COMMON)
    )
    assert models(own) == models(common) == {exact_model(own, own.participants)}


@pytest.mark.parametrize("scheme", SECURE)
def test_without_recovery_the_result_is_the_same(scheme: str) -> None:
    table = lying_table(scheme, 5, recovery=Recovery.NONE).run()
    assert models(table) == {exact_model(table, table.participants)}
    assert not messages(table, SealedShares)


@pytest.mark.parametrize("scheme", SECURE)
def test_without_recovery_one_missing_upload_ends_the_run_by_name(scheme: str) -> None:
    table = lose_before(lying_table(scheme, 5, recovery=Recovery.NONE), MaskedInput, "p2").run()
    assert nobody_has_a_result(table, *table.participants, SERVER)
    ending = told(table, SERVER).ending
    assert isinstance(ending, RunFailed)
    assert (ending.reason, ending.culprit) == (REASON.MISSING_UPLOAD, "p2")


@pytest.mark.parametrize("scheme", SECURE)
def test_without_recovery_a_repeat_with_others_is_refused_as_differencing(scheme: str) -> None:
    table = lose_before(lying_table(scheme, 5, recovery=Recovery.NONE), MaskedInput, "p2").run()
    assert all(participant(table, name).record.spent.keys() == {0} for name in ("p0", "p1", "p3", "p4"))


def test_a_cohort_that_differs_by_one_is_warned_about_or_refused() -> None:
    """Also when the earlier sum was never announced: what counts is that its shares went out."""
    for policy in Differencing:
        table = lying_table("masked", 6, rounds=2, differencing=policy, weights=Weights.BUCKETED)
        lose_before(table, MaskedInput, "p5", in_round=1).run()
        warned = [name for name in table.participants[:5] if told(table, name).warnings]
        refused = [one.error.reason for one in table.trace.refusals if one.flight.receiver != SERVER]
        if policy is Differencing.WARN:
            assert tuple(warned) == table.participants[:5]
            assert len(told(table, SERVER).commits) == 2
        else:
            assert set(refused) == {REASON.DIFFERENCING}
            assert len(told(table, SERVER).commits) == 1


@pytest.mark.parametrize("scheme", SECURE)
def test_a_late_joiner_takes_part_in_the_next_round(scheme: str) -> None:
    """Where peers hold the model, one of them gives it to the joiner, sealed, and all end with the same."""
    table = lying_table(scheme, 5, rounds=3, absent=["p4"])
    until(table, MaskedInput)
    table.restart("p4")
    table.run()
    assert [commit.members for commit in told(table, SERVER).commits] == [
        tuple(table.participants[:4]),
        tuple(table.participants),
        tuple(table.participants),
    ]
    assert len(models(table, 2)) == 1
    assert len(messages(table, ModelGiven)) == (0 if scheme == "masked" else 1)
    assert isinstance(told(table, PartyId("p4")).ending, RunFinished)


@pytest.mark.parametrize("scheme", SECURE)
def test_a_party_that_missed_a_round_returns_with_the_current_model(scheme: str) -> None:
    table = lying_table(scheme, 6, rounds=4)
    lose_before(table, MaskedInput, "p0")
    until(table, ReleasedShares)
    while not told(table, SERVER).commits:
        step(table)
    table.restart("p0")
    table.run()
    assert PartyId("p0") in told(table, SERVER).commits[-1].members
    final = {
        commit.model_hash
        for name in table.participants
        for commit in told(table, name).commits
        if commit.round == 3
    }
    assert len(final) == 1


@pytest.mark.parametrize("scheme", PEERS)
def test_peers_that_leave_take_no_later_seeds_with_them(scheme: str) -> None:
    """A departure opens a new session: fresh seeds, to those who are there."""
    table = lose_before(lying_table(scheme, 6, rounds=2), ReleasedShares, "p5").run()
    opened = messages(table, SessionOpened, receiver="p0")
    assert [len(one.hellos) for one in opened] == [6, 5]
    later = [one for one in table.trace.sent if isinstance(one.message, SeedsForNeighbour)]
    assert {one.receiver for one in later if one.message.stamp.session == opened[1].stamp.session} == set(
        table.participants[:5]
    )
    assert len(models(table, 1)) == 1


@pytest.mark.parametrize("scheme", PEERS)
def test_rekeying_every_round_changes_the_seeds_and_not_the_result(scheme: str) -> None:
    once, always = (
        lying_table(scheme, 4, rounds=2, rekey=rekey).run() for rekey in (Rekey.EPOCH, Rekey.ROUND)
    )
    assert [models(once, at) for at in (0, 1)] == [models(always, at) for at in (0, 1)]
    assert 2 * len(messages(once, SeedsForNeighbour)) == len(messages(always, SeedsForNeighbour))


def test_an_unknown_scheme_is_named_with_those_that_exist() -> None:
    with refusal(ParameterError, "magic", "ampc", "masked", "mpc", "plain"):
        find_scheme("magic")


def with_rules(federation: TableFederation, **changed: Any) -> TableFederation:
    return replace(federation, rules=replace(federation.rules, **changed))


REFUSED_BEFORE_ANY_MESSAGE = {
    "parts without a bridge": ({"graph": "edges:p0-p1,p2-p3", "parties": 4}, "p0 p2"),
    "fewer parties than the minimum": ({"min_parties": 4, "parties": 4, "roster": 3}, "3 participants"),
    "more neighbours than parties": ({"graph": "k-regular:6", "parties": 5}, "7"),
    "a sum over one": ({"min_parties": 1}, "2"),
    "two lists would both count": (
        {"graph": "k-regular:6", "parties": 9, "threshold": 3},
        "two survivor lists",
    ),
    "more shares than holders": ({"graph": "k-regular:6", "parties": 9, "threshold": 7}, "2 6"),
}


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("problem", REFUSED_BEFORE_ANY_MESSAGE)
def test_what_cannot_work_is_said_before_any_message(scheme: str, problem: str) -> None:
    fields, text = REFUSED_BEFORE_ANY_MESSAGE[problem]
    fields = {"parties": 5, **fields}
    roster = fields.pop("roster", None)
    with refusal(LocalProtocolError, *text.split()):
        federation = lying_table(scheme, **fields).federation
        kept = {SERVER, *federation.participants[:roster]}
        identities = tuple(one for one in federation.roster.identities if one.name in kept)
        new_machine(with_rules(federation, roster=Roster(1, identities)), SERVER)


@pytest.mark.parametrize("scheme", PEERS)
def test_a_thin_graph_names_the_missing_edge(scheme: str) -> None:
    with refusal(ParameterError, "p0", 1, 2, "p0-p2"):
        lying_table(scheme, 4, graph="edges:p0-p1,p1-p2,p2-p3,p1-p3")


@pytest.mark.parametrize("scheme", PEERS)
def test_a_peer_without_an_rsa_key_is_found_before_any_message(scheme: str) -> None:
    table = lying_table(scheme, 4)
    bare = make_identities(find_scheme("masked"), party_names(4), 7)[PartyId("p3")]
    peer = Identity(bare.name, table.federation.scheme.participant_role, bare.signing)
    kept = [one.public for name, one in table.federation.identities.items() if name != "p3"]
    roster = Roster(1, (*kept, peer.public))
    with refusal(ParameterError, "p3", "RSA"):
        new_machine(with_rules(table.federation, roster=roster), SERVER)


def test_a_roster_larger_than_the_number_budget_is_refused() -> None:
    """Otherwise a sum could wrap around."""
    table = lying_table("masked", 5)
    parameters = Parameters("masked", plan(4, MAX_WEIGHT, 8.0, 64).encoding, 6, 1, 3)
    with refusal(ParameterError, 5, 4, "participants"):
        new_machine(with_rules(table.federation, parameters=parameters), SERVER)


@pytest.mark.parametrize("scheme", SECURE)
def test_a_round_that_nobody_comes_to_ends_with_a_reason_and_the_names(scheme: str) -> None:
    table = lying_table(scheme, 5, absent=["p2", "p3", "p4"])
    table.run()
    ending = told(table, SERVER).ending
    assert isinstance(ending, RunFailed)
    assert ending.reason is REASON.COHORT_TOO_SMALL
    assert "2 of at least 3" in ending.detail
    assert "p2, p3, p4" in ending.detail


@pytest.mark.parametrize("scheme", SECURE)
def test_a_run_of_no_rounds_is_over_at_once(scheme: str) -> None:
    table = lying_table(scheme, 4, rounds=0).run()
    ending = told(table, SERVER).ending
    assert isinstance(ending, RunFinished)
    assert ending.rounds == 0
    assert ending.model is table.server.model
    assert not messages(table, SessionOpened)
