"""A sum opens only for a list that enough holders signed and released shares for, each of them counted once."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.support.refusals import refusal
from tests.support.snapshots import picture
from tests.support.tables.lying_shares import made_up_shares
from tests.support.tables.server_context import opened_session
from veilsum.protocol.crypto.shamir import SHARE_BYTES
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.graphs.graph import complete
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.decisions import RoundSpent
from veilsum.protocol.machines.events import DecisionMade, Send
from veilsum.protocol.secure_sum.agreement import SurvivorAgreement
from veilsum.protocol.secure_sum.relay import ShareRelay
from veilsum.protocol.secure_sum.shares import ReleasedShares
from veilsum.protocol.secure_sum.survivors import SURVIVOR_DOMAIN, SurvivorList, SurvivorSignature
from veilsum.protocol.wire.messages import Stamp
from veilsum.simulations.testing.federation import TableFederation

NAMES = tuple(PartyId(f"p{index}") for index in range(5))
SURVIVORS, DROPPED = NAMES[:4], NAMES[4:]
P0, P1, P4 = NAMES[0], NAMES[1], NAMES[4]
SHARE = bytes(SHARE_BYTES)


@pytest.fixture
def opened() -> tuple[TableFederation, SurvivorAgreement]:
    federation, context = opened_session(5)
    proposed = SurvivorList(context.stamp, SURVIVORS, DROPPED, len(NAMES))
    graph = complete(NAMES)
    relay = ShareRelay(context, graph, set(NAMES), dict.fromkeys(NAMES, bytes(32)))
    for name in NAMES:
        boxes = dict.fromkeys(graph.neighbours_of(name), b"")
        relay.add(name, made_up_shares(federation, context.stamp, name, boxes, SHARE))
    return federation, SurvivorAgreement(context, graph, proposed, relay)


def vote(federation: TableFederation, agreement: SurvivorAgreement, name: PartyId) -> SurvivorSignature:
    signing = federation.identities[name].signing
    return SurvivorSignature(agreement.stamp, signing.sign(SURVIVOR_DOMAIN, agreement.proposed.digest))


def released(
    stamp: Stamp, survivors: Iterable[PartyId] = SURVIVORS, dropped: Iterable[PartyId] = DROPPED
) -> ReleasedShares:
    return ReleasedShares(stamp, dict.fromkeys(survivors, SHARE), dict.fromkeys(dropped, SHARE))


def test_the_list_counts_from_the_threshold_on_and_not_before(
    opened: tuple[TableFederation, SurvivorAgreement],
) -> None:
    federation, agreement = opened
    needed = federation.parameters.threshold_of(len(NAMES))
    for count, name in enumerate(SURVIVORS):
        failed = agreement.unproved()
        assert (failed is None) == (count >= needed) == (not agreement.unsigned)
        if failed is not None:
            assert (failed.reason, failed.missing) == (AbortReason.TIMED_OUT, SURVIVORS[count:])
        agreement.vote.add(name, vote(federation, agreement, name))
    assert agreement.unproved() is None


def test_the_sum_opens_from_the_threshold_on_and_not_before(
    opened: tuple[TableFederation, SurvivorAgreement],
) -> None:
    federation, agreement = opened
    needed = federation.parameters.threshold_of(len(NAMES))
    for count, name in enumerate(SURVIVORS):
        failed = agreement.unopenable()
        assert (failed is None) == (count >= needed)
        if failed is not None:
            assert (failed.reason, failed.culprit) == (AbortReason.TIMED_OUT, name)
        assert agreement.unreleased(set(NAMES)) == set(SURVIVORS[count:])
        agreement.take_release(name, released(agreement.stamp))
    assert agreement.unopenable() is None


BAD_VOTES = {
    "a second one": (P0, P0, AbortReason.REPLAY),
    "of a dropped party": (P4, P4, AbortReason.SURVIVOR_LIST),
    "with the key of another": (P1, P0, AbortReason.BAD_SIGNATURE),
}


@pytest.mark.parametrize("defect", BAD_VOTES)
def test_a_refused_vote_changes_nothing(
    opened: tuple[TableFederation, SurvivorAgreement], defect: str
) -> None:
    sender, signer, reason = BAD_VOTES[defect]
    federation, agreement = opened
    agreement.vote.add(P0, vote(federation, agreement, P0))
    before = picture(agreement)
    with refusal(Rejection, reason=reason):
        agreement.vote.add(sender, vote(federation, agreement, signer))
    assert picture(agreement) == before


BAD_RELEASES = {
    "a second one": (P0, released(Stamp()), AbortReason.REPLAY),
    "of a dropped party": (P4, released(Stamp()), AbortReason.SURVIVOR_LIST),
    "the key of a survivor": (P1, released(Stamp(), (), SURVIVORS), AbortReason.SURVIVOR_LIST),
    "the self mask of a dropped party": (P1, released(Stamp(), NAMES, ()), AbortReason.SURVIVOR_LIST),
    "of a stranger": (P1, released(Stamp(), (*SURVIVORS, PartyId("p9"))), AbortReason.SURVIVOR_LIST),
}


@pytest.mark.parametrize("defect", BAD_RELEASES)
def test_a_refused_release_changes_nothing(
    opened: tuple[TableFederation, SurvivorAgreement], defect: str
) -> None:
    sender, message, reason = BAD_RELEASES[defect]
    _, agreement = opened
    agreement.take_release(P0, released(agreement.stamp))
    before = picture(agreement)
    with refusal(Rejection, reason=reason):
        agreement.take_release(sender, message)
    assert picture(agreement) == before


def test_a_wrong_share_is_left_out_with_its_holder_named_and_the_right_ones_beside_it_count(
    opened: tuple[TableFederation, SurvivorAgreement],
) -> None:
    federation, agreement = opened
    wrong = ReleasedShares(agreement.stamp, dict.fromkeys(SURVIVORS, SHARE), {P4: SHARE[1:]})
    for name in SURVIVORS[: federation.parameters.threshold_of(len(NAMES)) - 1]:
        agreement.take_release(name, released(agreement.stamp))
    agreement.take_release(SURVIVORS[-1], wrong)
    assert agreement.collector.short_of == DROPPED
    assert [one.party for one in agreement.named] == [SURVIVORS[-1]]
    failed = agreement.unopenable()
    assert failed is not None
    assert (failed.reason, failed.culprit) == (AbortReason.BAD_SHARE, SURVIVORS[-1])


def test_the_list_is_decided_before_anyone_is_asked_for_shares(
    opened: tuple[TableFederation, SurvivorAgreement],
) -> None:
    _, agreement = opened
    decided, *asked = agreement.ask_for_shares(agreement.lists())
    assert isinstance(decided, DecisionMade)
    assert isinstance(decided.decision, RoundSpent)
    assert decided.decision.round == agreement.stamp.round
    assert [one.receiver for one in asked if isinstance(one, Send)] == list(SURVIVORS)
    assert len(asked) == len(SURVIVORS)
