"""At one position a sum is over the first list again, or over parties that stand in no list."""

from __future__ import annotations

import pytest

from veilsum.protocol.chain.position import (
    AnyCohort,
    AttemptRecord,
    AwaitMembers,
    AwaitStatements,
    Cohort,
    OnlyCohort,
    PositionLost,
    PositionStatement,
    SitOut,
    UploadVerdict,
    all_members,
    judge_upload,
    require_permitted,
)
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId, shown_number
from veilsum.protocol.wire.messages import Stamp

FIRST, SECOND = Stamp(attempt=1), Stamp(attempt=2)
OWN = PartyId("a")


def cohort(names: str) -> Cohort:
    return frozenset(PartyId(name) for name in names)


def said(sender: str, members: str = "", signed: str = "", stamp: Stamp = FIRST) -> PositionStatement:
    """A statement about one attempt with these members, or about none."""
    record = AttemptRecord(stamp, cohort(members), uploaded=True, signed=cohort(signed) or None)
    return PositionStatement(PartyId(sender), (record,) if members else ())


def fresh(sender: str) -> PositionStatement:
    return PositionStatement(PartyId(sender), fresh=True)


def judge(*statements: PositionStatement, colluders: int = 1) -> UploadVerdict:
    return judge_upload(OWN, statements, all_members(colluders))


def test_the_first_attempt_of_a_position_is_free_for_all_its_members() -> None:
    assert judge(said("a"), said("b"), said("c"), fresh("d")) == AnyCohort(cohort("abcd"))


def test_after_enough_have_stated_no_list_any_cohort_may_follow() -> None:
    statements = [said(name, "abcd") for name in "abc"]
    assert judge(*statements, said("e")) == AnyCohort(cohort("abce"))


def test_a_party_that_uploaded_waits_until_enough_of_that_attempt_have_stated() -> None:
    verdict = judge(said("a", "abcd"), said("b", "abcd"), said("e"))
    assert verdict == AwaitStatements(FIRST, cohort("cd"), 1)


def test_a_party_that_entered_an_attempt_and_did_not_upload_waits_for_nobody() -> None:
    entered = PositionStatement(OWN, (AttemptRecord(FIRST, cohort("abcd")),))
    assert judge(entered, said("e"), said("f")) == AnyCohort(cohort("aef"))


def test_silence_about_an_attempt_counts_as_none_but_not_from_a_party_that_lost_its_disk() -> None:
    mine, other = said("a", "abcd"), said("b", "abcd")
    assert judge(mine, other, said("c")) == AnyCohort(cohort("abc"))
    assert judge(mine, other, fresh("c")) == AwaitStatements(FIRST, cohort("cd"), 1)


def test_a_fresh_party_speaks_of_the_attempts_of_its_present_life() -> None:
    record = AttemptRecord(FIRST, cohort("abcd"), uploaded=True)
    newcomer = PositionStatement(PartyId("c"), (record,), fresh=True)
    assert judge(said("a", "abcd"), said("b", "abcd"), newcomer) == AnyCohort(cohort("abc"))


def test_a_list_that_we_never_saw_binds_us_when_it_may_be_open() -> None:
    statements = [said("a", "abcd"), said("b", "abcd", "abc"), said("c", "abcd", "abc"), said("e")]
    assert judge(*statements) == OnlyCohort(cohort("abc"))


def test_one_who_states_a_list_binds_all_while_the_others_have_not_spoken() -> None:
    statements = [said("a", "abcde"), said("b", "abcde", "abcd"), said("e", "abcde"), said("f")]
    assert judge(*statements) == AwaitStatements(FIRST, cohort("cd"), 1)
    assert judge(*statements, said("c", "abcde")) == AnyCohort(cohort("abcef"))
    assert judge(*statements, said("c", "abcde", "abcd")) == AwaitMembers(cohort("abcd"), cohort("d"))


def test_a_vote_that_broke_off_does_not_bind_those_who_stated_that_they_did_not_sign() -> None:
    signed = [said(name, "abcdefgh", "abcdefg") for name in "ab"]
    statements = [*signed, *(said(name, "abcdefgh") for name in "cdefh")]
    assert judge(*statements, colluders=2) == AnyCohort(cohort("abcdefh"))


def test_a_list_that_one_member_invents_neither_binds_nor_closes_where_its_attempt_is_known() -> None:
    invented = said("d", "abcd", "abd")
    statements = [said("a", "abcd"), said("b", "abcd"), said("c", "abcd"), invented]
    assert judge(*statements) == AnyCohort(cohort("abcd"))
    require_permitted(cohort("abc"), statements, all_members(1))


def test_a_list_that_must_be_repeated_waits_for_all_of_it() -> None:
    statements = [said("a", "abcd"), said("b", "abcd", "abd"), said("c", "abcd")]
    assert judge(*statements) == AwaitMembers(cohort("abd"), cohort("d"))


def test_who_stands_in_no_list_may_go_on_with_others_who_stand_in_none() -> None:
    statements = [said("a"), said("b", "bcd", "bcd"), said("c", "bcd"), said("e"), said("f")]
    assert judge(*statements) == AnyCohort(cohort("aef"))


def test_two_lists_of_one_attempt_close_the_position() -> None:
    lists = frozenset((cohort("bcd"), cohort("cde")))
    assert judge(said("a"), said("b", "bcde", "bcd"), said("e", "bcde", "cde")) == PositionLost(lists)


def test_two_lists_with_a_common_member_close_the_position() -> None:
    lists = frozenset((cohort("bcd"), cohort("def")))
    statements = [said("a"), said("b", "bcd", "bcd"), said("e", "def", "def", SECOND)]
    assert judge(*statements) == PositionLost(lists)


def test_a_party_that_lost_its_update_sits_out_where_it_is_named() -> None:
    assert judge(fresh("a"), said("b", "abcd"), said("c", "bcd")) == SitOut(cohort("b"))
    assert judge(fresh("a"), said("b", "bcd"), said("c", "bcd")) == AnyCohort(cohort("abc"))


def test_others_go_on_without_one_that_sits_out() -> None:
    statements = [said("a", "abcd"), said("b", "abcd"), said("c", "abcd"), fresh("d")]
    assert judge(*statements) == AnyCohort(cohort("abc"))


def test_a_list_one_of_whom_lost_its_update_cannot_be_repeated() -> None:
    statements = [said("a", "abcd", "abd"), said("b", "abcd", "abd"), said("c", "abcd"), fresh("d")]
    assert judge(*statements) == PositionLost(frozenset((cohort("abd"),)), cohort("d"))


def test_a_position_is_judged_by_one_statement_of_each_member() -> None:
    for statements in ([said("b")], [said("a"), said("b"), said("b")]):
        with pytest.raises(LocalProtocolError, match="that of a"):
            judge(*statements)


@pytest.mark.parametrize("names", ["bcd", "aef", "ae"])
def test_a_list_is_signed_that_was_there_before_or_shares_nobody_with_one(names: str) -> None:
    require_permitted(cohort(names), [said("a"), said("b", "bcd", "bcd")], all_members(1))


@pytest.mark.parametrize(("names", "others"), [("abcd", "a"), ("bc", "d"), ("ab", "a, c, d")])
def test_a_list_that_shares_some_with_another_is_not_signed(names: str, others: str) -> None:
    with pytest.raises(Rejection, match=f"differs by {others}$") as refused:
        require_permitted(cohort(names), [said("a"), said("b", "bcd", "bcd")], all_members(1))
    assert f"attempt {shown_number(FIRST.attempt)}" in str(refused.value)
    assert refused.value.reason is AbortReason.DIFFERENCING
