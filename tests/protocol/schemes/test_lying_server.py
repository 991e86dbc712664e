"""A server that lies about who is in the sum: every lie has its own refusal, and nobody ends with a wrong result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.tables.lying_table import (
    attempt_of,
    exact_model,
    hand_over,
    lying_table,
    messages,
    nobody_has_a_result,
    refuses,
    say,
    told,
    until,
)
from veilsum.protocol.agreed.threat import Threat
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.session import RoundClosed
from veilsum.protocol.schemes.ampc.messages import SeedsRevealed
from veilsum.protocol.schemes.masked.messages import RoundKeys
from veilsum.protocol.secure_sum.certifying import SumOpened
from veilsum.protocol.secure_sum.shares import DeliveredShares, ReleasedShares, SealedShares
from veilsum.protocol.secure_sum.survivors import (
    SURVIVOR_DOMAIN,
    SurvivorList,
    SurvivorProof,
    SurvivorSignature,
)
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message
from veilsum.simulations.testing.table import Table
from veilsum.simulations.testing.trace import InFlight

SECURE = ("masked", "mpc", "ampc")
REASON = AbortReason

Names = tuple[PartyId, ...]


def names(*indices: int) -> Names:
    return tuple(PartyId(f"p{index}") for index in indices)


def listing(table: Table, honest: Message, survivors: Names, dropped: Names) -> SurvivorList:
    """The list that the server showed, with other names in it, and signed again: its signature is its own."""
    assert isinstance(honest, SurvivorList)
    changed = replace(honest, survivors=survivors, dropped=dropped, total=len(survivors))
    return changed.vouched(table.federation.identities[SERVER])


def losing(kind: type[Message], *lost: str) -> Callable[[Table], None]:
    """The named parties vanish right before they would send such a message."""

    def install(table: Table) -> None:
        def tamper(flight: InFlight) -> Message | None:
            if isinstance(flight.message, kind) and flight.sender in lost:
                table.crash(flight.sender)
                return None
            return flight.message

        table.tamper = tamper

    return install


def table_with_dropout(scheme: str, **fields: object) -> Table:
    """Five parties, of which p4 never uploads."""
    table = lying_table(scheme, 5, **fields)  # type: ignore[arg-type]  # fields of Parameters
    losing(MaskedInput, "p4")(table)
    return table


def finishes_exactly(table: Table, members: Names) -> bool:
    """Whether the run, from here on honest, ends with the exact mean over `members` wherever it ends."""
    table.run()
    holders = [SERVER] if table.federation.scheme.server_holds_model else list(members)
    results = [told(table, name).commits[-1] for name in holders]
    expected = exact_model(table, members)
    return all(
        one.members == members and one.model is not None and one.model.tobytes() == expected
        for one in results
    )


LYING_LISTS = {
    "both": (names(0, 1, 2, 3), names(3, 4), REASON.BOTH_SHARE_KINDS),
    "unknown id": ((*names(0, 1, 2, 3), PartyId("stranger")), names(4), REASON.UNKNOWN_PARTY),
    "we are dropped": (names(1, 2, 3), names(0, 4), REASON.SURVIVOR_LIST),
    "survivor twice": (names(0, 1, 1, 2, 3), names(4), REASON.SURVIVOR_LIST),
    "dropped twice": (names(0, 1, 2, 3), names(4, 4), REASON.SURVIVOR_LIST),
    "a member is not named": (names(0, 1, 2, 3), (), REASON.SURVIVOR_LIST),
    "too few survivors": (names(0, 1), names(2, 3, 4), REASON.COHORT_TOO_SMALL),
}


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("lie", LYING_LISTS)
def test_a_lying_survivor_list_is_refused_and_the_honest_one_still_counts(scheme: str, lie: str) -> None:
    survivors, dropped, reason = LYING_LISTS[lie]
    table = table_with_dropout(scheme)
    honest = until(table, SurvivorList, "p0").message
    assert isinstance(honest, SurvivorList)
    refuses(table, "p0", "server", listing(table, honest, survivors, dropped), reason)
    assert not messages(table, SurvivorSignature, "p0")
    assert not messages(table, ReleasedShares)
    assert finishes_exactly(table, names(0, 1, 2, 3))


@pytest.mark.parametrize("scheme", SECURE)
def test_survivors_must_be_named_to_count_against_a_lying_server(scheme: str) -> None:
    """Two named survivors do not become three by saying so."""
    table = table_with_dropout(scheme)
    honest = until(table, SurvivorList, "p0").message
    claimed = replace(listing(table, honest, names(0, 1), names(2, 3, 4)), total=3)
    refuses(table, "p0", "server", claimed, REASON.SURVIVOR_LIST)
    assert finishes_exactly(table, names(0, 1, 2, 3))


@pytest.mark.parametrize("scheme", SECURE)
def test_only_the_server_may_name_survivors(scheme: str) -> None:
    table = table_with_dropout(scheme)
    honest = until(table, SurvivorList, "p0").message
    refuses(table, "p0", "p1", honest, REASON.UNEXPECTED_MESSAGE)
    assert finishes_exactly(table, names(0, 1, 2, 3))


@pytest.mark.parametrize("scheme", SECURE)
def test_a_party_that_never_shared_cannot_be_called_a_survivor(scheme: str) -> None:
    """Its self mask could not be removed; and under `masked` nobody has masks with it."""
    table = lying_table(scheme, 6)
    losing(SealedShares, "p5")(table)
    honest = until(table, SurvivorList, "p0").message
    assert isinstance(honest, SurvivorList)
    padded = listing(table, honest, names(0, 1, 2, 3, 4, 5), ())
    refuses(table, "p0", "server", padded, REASON.SURVIVOR_LIST)
    assert finishes_exactly(table, names(0, 1, 2, 3, 4))


def test_members_outside_the_cohort_do_not_make_a_small_sum_large() -> None:
    """p5 is in the session but sent no key: it can neither survive nor drop."""
    table = lying_table("masked", 6, min_parties=5)
    losing(RoundKeys, "p5")(table)
    honest = until(table, SurvivorList, "p0").message
    assert isinstance(honest, SurvivorList)
    padded = listing(table, honest, names(0, 1, 2, 3, 5), names(4))
    refuses(table, "p0", "server", padded, REASON.UNKNOWN_PARTY)
    assert finishes_exactly(table, names(0, 1, 2, 3, 4))


@pytest.mark.parametrize("scheme", SECURE)
def test_a_second_list_in_one_attempt_is_equivocation(scheme: str) -> None:
    table = table_with_dropout(scheme)
    flight = until(table, SurvivorList, "p0")
    table.drop(flight)
    hand_over(table, flight)
    assert isinstance(flight.message, SurvivorList)
    other = listing(table, flight.message, names(0, 1, 2), names(3, 4))
    refuses(table, "p0", "server", other, REASON.EQUIVOCATION)
    refuses(table, "p0", "server", flight.message, REASON.REPLAY)
    assert len(messages(table, SurvivorSignature, "p0")) == 1
    assert finishes_exactly(table, names(0, 1, 2, 3))


def signed_by(table: Table, digest: bytes, *signers: str) -> dict[PartyId, bytes]:
    return {
        PartyId(name): table.federation.identities[PartyId(name)].signing.sign(SURVIVOR_DOMAIN, digest)
        for name in signers
    }


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize(
    "lie", ["lowered t", "forged", "swapped", "dropped party", "another list", "stranger"]
)
def test_a_false_proof_of_agreement_releases_nothing(scheme: str, lie: str) -> None:
    """t signatures of holders that survive, over the list that we signed: nothing less will do."""
    table = table_with_dropout(scheme)
    agreed = until(table, SurvivorList, "p0").message
    proof = until(table, SurvivorProof, "p0").message
    assert isinstance(agreed, SurvivorList)
    assert isinstance(proof, SurvivorProof)
    good = dict(proof.signatures)
    assert len(good) == 4
    three = {name: good[name] for name in names(0, 1, 2)}
    other = listing(table, agreed, names(0, 1, 2), names(3, 4))
    signatures, reason = {
        "lowered t": (three, REASON.SURVIVOR_LIST),
        "forged": (three | {PartyId("p3"): bytes(64)}, REASON.BAD_SIGNATURE),
        "swapped": (three | {PartyId("p3"): good[PartyId("p2")]}, REASON.BAD_SIGNATURE),
        "dropped party": (three | signed_by(table, agreed.digest, "p4"), REASON.SURVIVOR_LIST),
        "another list": (three | signed_by(table, other.digest, "p3"), REASON.BAD_SIGNATURE),
        "stranger": (good | {PartyId("stranger"): bytes(64)}, REASON.SURVIVOR_LIST),
    }[lie]
    refuses(table, "p0", "server", replace(proof, signatures=signatures), reason)
    assert not messages(table, ReleasedShares, "p0")
    assert not messages(table, SeedsRevealed, "p0")
    assert finishes_exactly(table, names(0, 1, 2, 3))


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("split", [1, 2])
def test_two_lists_for_two_groups_never_both_collect_t(scheme: str, split: int) -> None:
    """Whatever signatures the server holds after showing two lists, at most one group releases anything."""
    table = lying_table(scheme, 5)
    everyone, without_first = names(0, 1, 2, 3, 4), names(1, 2, 3, 4)

    def tamper(flight: InFlight) -> Message | None:
        if isinstance(flight.message, SurvivorList) and flight.receiver > PartyId(f"p{split}"):
            return listing(table, flight.message, without_first, names(0))
        return None if isinstance(flight.message, SurvivorProof) else flight.message

    table.tamper = tamper
    until(table, SurvivorSignature)
    table.deliver_all()
    signatures = {
        flight.sender: flight.message.signature
        for flight in table.trace.sent
        if isinstance(flight.message, SurvivorSignature)
    }
    assert signatures.keys() == set(everyone)
    stamp = attempt_of(table, "p1").stamp
    for group in (everyone[: split + 1], everyone[split + 1 :]):
        for name in group:
            own = {signer: signatures[signer] for signer in group}
            refuses(table, name, "server", SurvivorProof(stamp, own), REASON.SURVIVOR_LIST)
    table.run()
    assert not messages(table, ReleasedShares)
    assert not messages(table, SeedsRevealed)
    assert nobody_has_a_result(table)


@pytest.mark.parametrize("scheme", ["mpc", "ampc"])
def test_neighbours_told_that_a_peer_dropped_reveal_nothing_without_t_signatures(scheme: str) -> None:
    """On a ring of seven, two neighbours hold all that hides a peer but its self mask, and t = 5 need neither."""
    table = lying_table(scheme, 7, graph="ring")
    victim, around, everyone = PartyId("p3"), names(2, 4), names(*range(7))

    def tamper(flight: InFlight) -> Message | None:
        if isinstance(flight.message, SurvivorList) and flight.receiver in around:
            others = tuple(name for name in everyone if name != victim)
            return listing(table, flight.message, others, (victim,))
        return flight.message

    table.tamper = tamper
    table.run()
    releasing = {flight.sender for flight in table.trace.sent if isinstance(flight.message, ReleasedShares)}
    assert releasing == set(everyone) - set(around)
    assert not messages(table, SeedsRevealed)
    assert not {name for name in around if told(table, name).commits}


@pytest.mark.parametrize("scheme", ["mpc", "ampc"])
def test_dropped_peers_must_not_cut_the_survivors_apart(scheme: str) -> None:
    """With p1 and p3 of a ring gone, p2 would be opened alone."""
    table = lying_table(scheme, 7, graph="ring")
    honest = until(table, SurvivorList, "p5").message
    assert isinstance(honest, SurvivorList)
    cut = listing(table, honest, names(0, 2, 4, 5, 6), names(1, 3))
    detail = refuses(table, "p5", "server", cut, REASON.GRAPH_TOO_THIN)
    assert "p0 and p2" in detail
    assert finishes_exactly(table, names(*range(7)))


def test_an_honest_server_repeats_an_attempt_whose_survivors_were_cut_apart() -> None:
    """Ring of eight clients, two opposite ones vanish: no sum opens, and the next attempt goes around them."""
    table = lying_table("masked", 8, graph="ring", threat=Threat.SEMI_HONEST)
    losing(MaskedInput, "p1", "p5")(table)
    table.run()
    assert [failure.reason for failure in told(table, SERVER).failures] == [REASON.GRAPH_TOO_THIN]
    assert {name: len(told(table, name).commits) for name in names(0, 2, 3, 4, 6, 7)} == dict.fromkeys(
        names(0, 2, 3, 4, 6, 7), 1
    )
    assert all(message.stamp.attempt == 1 for message in messages(table, ReleasedShares))


def test_the_neighbours_of_a_victim_are_not_both_alive_to_some_and_gone_to_others() -> None:
    """Twelve clients, six neighbours each: the server needs the victim's self mask from its neighbours and their
    keys from everyone else. A client releases only if each party it holds shares of has t holders behind its
    list, so the border of the two stories releases nothing, and the victim stays closed."""
    table = lying_table("masked", 12, graph="k-regular:6", threshold=5)
    honest = until(table, SurvivorList).message
    assert isinstance(honest, SurvivorList)
    graph = attempt_of(table, "p0")._round.graph  # type: ignore[attr-defined]  # the test is the attacker
    victim = PartyId("p0")
    inside = {victim, *graph.neighbours[victim]}
    others = tuple(name for name in honest.survivors if name not in graph.neighbours[victim])
    story = listing(table, honest, others, tuple(sorted(graph.neighbours[victim])))
    for flight in list(table.wire):
        table.drop(flight)
        told = flight.message if flight.receiver in inside else story
        assert say(table, "server", flight.receiver, told) is None or flight.receiver not in inside
    signatures = {
        flight.sender: flight.message.signature
        for flight in table.trace.sent
        if isinstance(flight.message, SurvivorSignature)
    }
    for name in inside & signatures.keys():
        own = {signer: signatures[signer] for signer in inside if signer in signatures}
        say(table, "server", name, SurvivorProof(honest.stamp, own))
    released = [message for message in messages(table, ReleasedShares) if victim in message.self_masks]
    assert len(released) < 5


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("lie", ["too few", "stranger", "our own"])
def test_false_deliveries_of_shares_are_refused(scheme: str, lie: str) -> None:
    table = lying_table(scheme, 5)
    honest = until(table, DeliveredShares, "p0").message
    assert isinstance(honest, DeliveredShares)
    boxes, reason = {
        "too few": (dict(list(honest.boxes.items())[:2]), REASON.COHORT_TOO_SMALL),
        "stranger": (
            {**honest.boxes, PartyId("stranger"): honest.boxes[PartyId("p1")]},
            REASON.UNKNOWN_PARTY,
        ),
        "our own": ({**honest.boxes, PartyId("p0"): honest.boxes[PartyId("p1")]}, REASON.UNKNOWN_PARTY),
    }[lie]
    refuses(table, "p0", "server", replace(honest, boxes=boxes), reason)
    assert finishes_exactly(table, names(*range(5)))


@pytest.mark.parametrize("when", [RoundKeys, SealedShares, MaskedInput])
def test_a_round_cannot_be_closed_over_the_heads_of_its_clients(when: type[Message]) -> None:
    """A client that was shown no sum has no result, whatever the server says."""
    table = lying_table("masked", 5)
    until(table, when, sender="p0")
    stamp = attempt_of(table, "p0").stamp
    closed = RoundClosed(stamp, True, names(0, 1, 2, 3, 4), bytes(32))
    refuses(table, "p0", "server", closed, REASON.UNEXPECTED_MESSAGE)
    assert finishes_exactly(table, names(*range(5)))


@pytest.mark.parametrize("members", [names(0, 1, 2, 3), names(1, 2, 3, 4), ()])
def test_a_sum_over_another_set_than_agreed_is_not_looked_at(members: Names) -> None:
    table = lying_table("masked", 5)
    shown = until(table, SumOpened, "p0").message
    assert isinstance(shown, SumOpened)
    refuses(table, "p0", "server", replace(shown, survivors=members), REASON.SURVIVOR_LIST)
    assert finishes_exactly(table, names(*range(5)))


@pytest.mark.parametrize("members", [names(0, 1, 2, 3), names(1, 2, 3, 4), ()])
def test_a_round_cannot_be_closed_with_another_set_than_was_shown(members: Names) -> None:
    """p0 voted and is told of another sum: it has no result, and its vote stands for the one it checked."""
    table = lying_table("masked", 5)
    honest = until(table, RoundClosed, "p0").message
    assert isinstance(honest, RoundClosed)
    assert say(table, "server", "p0", replace(honest, members=members)) is None
    (failure,) = told(table, "p0").failures
    assert (failure.reason, failure.culprit) == (REASON.WRONG_MODEL, SERVER)
    assert not told(table, "p0").commits
