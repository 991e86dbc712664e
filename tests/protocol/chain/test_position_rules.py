"""What the statements of a session allow one of its members, and the typed reason where they allow nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from tests.support.tables.lying_table import party_names
from veilsum.protocol.agreed.parameters import Parameters
from veilsum.protocol.chain.position import OnlyCohort, PositionStatement
from veilsum.protocol.chain.statements import (
    LIST_DOMAIN,
    EnteredAttempt,
    PositionRules,
    list_digest,
    require_vouched,
    voters_rule,
)
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.graphs.policy import parse_graph
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.wire.messages import Stamp
from veilsum.simulations.testing import Table

REASON = AbortReason
NAMES = tuple(party_names(5))
P0, P1, P2, P3, P4 = NAMES
FEDERATION = Table.build("masked", NAMES).federation
SESSION, LATER = bytes([1]) * 32, bytes([2]) * 32
POSITION = 3


def entered(
    released: tuple[PartyId, ...] = (), *, session: bytes = SESSION, uploaded: bool = True
) -> EnteredAttempt:
    return EnteredAttempt(session, 0, NAMES, uploaded, released)


def said(name: PartyId, *attempts: EnteredAttempt, fresh: bool = False) -> PositionStatement:
    return PositionStatement(name, tuple(one.described(POSITION) for one in attempts), fresh)


def rules_of(*statements: PositionStatement, graph: str = "complete", me: PartyId = P0) -> PositionRules:
    parameters = replace(FEDERATION.parameters, graph=parse_graph(graph))
    voters_of = voters_rule(parameters, shares_follow_graph=True)
    return PositionRules.of(me, voters_of, {one.sender: one for one in statements})


def everyone(*attempts: EnteredAttempt, names: tuple[PartyId, ...] = NAMES) -> list[PositionStatement]:
    return [said(name, *attempts) for name in names]


FOUR = NAMES[:4]


@pytest.mark.parametrize(
    ("statements", "reason", "mentioned"),
    [
        (everyone(entered(), names=NAMES[:3]), REASON.DIFFERENCING, (P3, P4)),
        (everyone(entered(NAMES), names=FOUR), REASON.DIFFERENCING, (P4, "checkpoint")),
        ([said(P0, fresh=True), *everyone(entered(), names=NAMES[1:])], REASON.DIFFERENCING, (P1,)),
        (
            [*everyone(entered(NAMES), names=FOUR), said(P4, fresh=True)],
            REASON.POSITION_LOST,
            (P4, "checkpoint"),
        ),
        (
            [*everyone(entered(NAMES), names=FOUR), said(P4, entered(FOUR, session=LATER))],
            None,
            (),
        ),
    ],
    ids=[
        "waits for statements",
        "waits for members",
        "lost its update",
        "another lost it",
        "one invents a list",
    ],
)
def test_whoever_may_not_upload_is_told_a_typed_reason_and_whom_it_waits_for(
    statements: list[PositionStatement], reason: AbortReason | None, mentioned: tuple[str, ...]
) -> None:
    rules = rules_of(*statements)
    if reason is None:
        rules.require_upload(POSITION)
        return
    with refusal(Rejection, str(POSITION), *mentioned, reason=reason):
        rules.require_upload(POSITION)


def test_two_lists_of_one_attempt_that_may_both_be_open_close_the_position() -> None:
    """Two of five speak: three silent ones and the colluder are enough for either list."""
    rules = rules_of(said(P0, entered(NAMES)), said(P1, entered(FOUR)))
    with refusal(Rejection, "2", "checkpoint", reason=REASON.POSITION_LOST):
        rules.require_upload(POSITION)


def test_the_sum_that_is_repeated_is_over_its_list_and_over_no_other() -> None:
    rules = rules_of(*everyone(entered(FOUR)))
    assert rules.verdict == OnlyCohort(frozenset(FOUR))
    rules.require_list(FOUR)
    for other in (NAMES, NAMES[:3], (*NAMES[:3], P4)):
        with refusal(Rejection, reason=REASON.DIFFERENCING):
            rules.require_list(other)


def test_a_party_that_lost_its_update_is_on_no_list_of_the_others() -> None:
    rules = rules_of(*everyone(entered(), names=FOUR), said(P4, fresh=True))
    rules.require_upload(POSITION)
    rules.require_list(FOUR)
    with refusal(Rejection, P4, reason=REASON.DIFFERENCING):
        rules.require_list(NAMES)


def test_on_a_thin_graph_all_must_have_spoken_and_any_list_counts() -> None:
    """A few neighbours open a list there: four of five who deny it are not enough."""
    thin = "k-regular:4"
    silent = rules_of(*everyone(entered(), names=FOUR), graph=thin)
    with refusal(Rejection, P4, reason=REASON.DIFFERENCING):
        silent.require_upload(POSITION)
    statements = [*everyone(entered(), names=FOUR), said(P4, entered(FOUR))]
    assert rules_of(*statements, graph=thin).verdict == OnlyCohort(frozenset(FOUR))
    rules_of(*statements).require_list(NAMES)


@given(st.lists(st.sampled_from(["all", "four", "none", "fresh", "absent"]), min_size=4, max_size=4))
def test_whatever_the_others_state_a_list_that_we_sign_shares_nobody_with_another_that_may_be_open(
    words: list[str],
) -> None:
    """If we upload at all, each list that we may sign is one that counts, or shares nobody with any that does."""
    stated = {"all": (entered(NAMES),), "four": (entered(FOUR),), "none": (entered(),), "fresh": ()}
    others = [
        said(name, *stated[word], fresh=word == "fresh")
        for name, word in zip(NAMES[1:], words, strict=True)
        if word != "absent"
    ]
    rules = rules_of(said(P0, entered()), *others)
    able = {"all": NAMES, "four": FOUR}
    open_lists = [
        frozenset(names)
        for word, names in able.items()
        if word in words and may_be_open(frozenset(names), word, words)
    ]
    try:
        rules.require_upload(POSITION)
    except Rejection as refused:
        assert refused.reason in (REASON.DIFFERENCING, REASON.POSITION_LOST)
        return
    for chosen in (NAMES, FOUR, NAMES[:3]):
        clash = any(frozenset(chosen) != one and frozenset(chosen) & one for one in open_lists)
        if clash:
            with refusal(Rejection, reason=REASON.DIFFERENCING):
                rules.require_list(chosen)


def may_be_open(names: frozenset[PartyId], word: str, words: list[str]) -> bool:
    """By the page: of its survivors those who state it, those who have not spoken, and one who denies, are four."""
    said_by = dict(zip(NAMES, ["none", *words], strict=True))
    stating = sum(said_by[name] == word for name in names)
    unspoken = sum(said_by[name] in ("fresh", "absent") for name in names)
    denying = len(names) - stating - unspoken
    return stating + unspoken + min(denying, 1) >= 4


def vouched(one: EnteredAttempt, position: int = POSITION, by: PartyId = SERVER) -> EnteredAttempt:
    digest = list_digest(one.stamp(position), one.released, one.members)
    return replace(one, voucher=FEDERATION.identities[by].signing.sign(LIST_DOMAIN, digest))


def test_a_stated_list_is_one_that_the_server_signed_for_these_members_of_this_attempt() -> None:
    roster, true = FEDERATION.roster, vouched(entered(FOUR))
    require_vouched(roster, POSITION, [true, entered()])
    lies = [
        replace(true, released=NAMES),
        replace(true, members=FOUR),
        replace(true, attempt=1),
        replace(true, session=LATER),
        replace(true, voucher=b""),
        vouched(entered(FOUR), position=POSITION + 1),
        vouched(entered(FOUR), by=P0),
    ]
    for lie in lies:
        with refusal(Rejection, reason=REASON.BAD_SIGNATURE):
            require_vouched(roster, POSITION, [true, lie])


def test_the_order_of_names_does_not_matter_to_a_voucher_and_everything_else_does() -> None:
    stamp = Stamp(SESSION, POSITION, 0)
    assert list_digest(stamp, FOUR, NAMES) == list_digest(stamp, FOUR[::-1], NAMES[::-1])
    others = [
        list_digest(stamp, NAMES, FOUR),
        list_digest(stamp, FOUR, FOUR),
        list_digest(replace(stamp, round=4), FOUR, NAMES),
    ]
    assert len({list_digest(stamp, FOUR, NAMES), *others}) == 4


def test_as_many_open_a_list_as_the_roster_says_not_as_its_session_has() -> None:
    """t(5) = 4 of five with one colluder; of three members three."""
    parameters: Parameters = FEDERATION.parameters
    for members, needed in ((NAMES, 4), (FOUR, 3), (NAMES[:3], 3)):
        attempt = replace(entered(), members=members).described(POSITION)
        voters = voters_rule(parameters, shares_follow_graph=True)(attempt)
        assert (voters.names, voters.threshold, voters.colluders) == (frozenset(members), needed, 1)
