"""A participant that lies: the lie is refused with its name, or the others end without a result, never a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.support.refusals import require_mentions
from tests.support.tables.lying_sessions import signed_hello
from tests.support.tables.lying_table import (
    exact_model,
    hand_over,
    input_of,
    lying_table,
    nobody_has_a_result,
    participant,
    reasons,
    refuses,
    say,
    told,
    until,
)
from tests.support.tables.lying_uploads import lying_uploader
from veilsum.protocol.crypto.agreement import AgreementKey
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.session import Hello
from veilsum.protocol.schemes.ampc.messages import ResultDigest, SeedsRevealed
from veilsum.protocol.schemes.masked.messages import ROUND_KEY_DOMAIN, RoundKeys, round_key_digest
from veilsum.protocol.secure_sum.shares import ReleasedShares, SealedShares
from veilsum.protocol.secure_sum.survivors import SURVIVOR_DOMAIN, SurvivorList, SurvivorSignature
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message
from veilsum.simulations.testing.table import Table, Tamper
from veilsum.simulations.testing.trace import InFlight

SECURE = ("masked", "mpc", "ampc")
PEERS = ("mpc", "ampc")
REASON = AbortReason
P0, P1, P7 = PartyId("p0"), PartyId("p1"), PartyId("p7")


def altering(kind: type[Message], sender: str, change: Callable[[Message], Message | None]) -> Tamper:
    def tamper(flight: InFlight) -> Message | None:
        mine = isinstance(flight.message, kind) and flight.sender == sender
        return change(flight.message) if mine else flight.message

    return tamper


def result_of(table: Table) -> bytes:
    holder = SERVER if table.federation.scheme.server_holds_model else table.participants[1]
    model = told(table, holder).commits[0].model
    assert model is not None
    return model.tobytes()


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("lie", ["short", "long", "narrow", "floats"])
def test_an_upload_of_another_shape_is_refused(scheme: str, lie: str) -> None:
    table = lying_table(scheme, 5)
    honest = until(table, MaskedInput, sender="p0").message
    assert isinstance(honest, MaskedInput)
    words = honest.vector
    vector = {
        "short": words[:-1],
        "long": np.concatenate([words, words[:1]]),
        "narrow": words.astype("<u4"),
        "floats": words.astype("<f8"),
    }[lie]
    refuses(table, "server", "p0", replace(honest, vector=vector), REASON.BAD_VECTOR)
    table.run()
    assert result_of(table) == exact_model(table, table.participants)


REPEATED = {
    "masked": (RoundKeys, SealedShares, MaskedInput, SurvivorSignature, ReleasedShares),
    "mpc": (SealedShares, MaskedInput, SurvivorSignature, ReleasedShares, ResultDigest),
    "ampc": (SealedShares, MaskedInput, SurvivorSignature, ReleasedShares, ResultDigest),
}


@pytest.mark.parametrize(("scheme", "kind"), [(name, kind) for name in SECURE for kind in REPEATED[name]])
def test_what_a_party_says_twice_counts_once(scheme: str, kind: type[Message]) -> None:
    table = lying_table(scheme, 5)
    flight = until(table, kind, "server", "p0")
    table.drop(flight)
    hand_over(table, flight)
    refuses(table, "server", "p0", flight.message, REASON.REPLAY)
    table.run()
    assert result_of(table) == exact_model(table, table.participants)


@pytest.mark.parametrize("scheme", SECURE)
def test_two_different_hellos_for_one_invitation_are_equivocation(scheme: str) -> None:
    table = lying_table(scheme, 5)
    flight = until(table, Hello, sender="p0")
    table.drop(flight)
    hand_over(table, flight)
    assert isinstance(flight.message, Hello)
    other = replace(flight.message, hello=replace(flight.message.hello, rounds_done=1))
    refuses(table, "server", "p0", other, REASON.EQUIVOCATION)
    assert say(table, "p0", "server", flight.message) is None
    table.run()
    assert result_of(table) == exact_model(table, table.participants)


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize(
    "lie", ["signed by another", "another invitation", "low order", "the key of another"]
)
def test_a_forged_hello_opens_nothing(scheme: str, lie: str) -> None:
    table = lying_table(scheme, 5)
    theirs = until(table, Hello, sender="p1")
    table.drop(theirs)
    hand_over(table, theirs)
    honest = until(table, Hello, sender="p0").message
    assert isinstance(honest, Hello)
    assert isinstance(theirs.message, Hello)
    key = {"low order": bytes(32), "the key of another": theirs.message.hello.box_key}.get(
        lie, AgreementKey(Secret(bytes([5]) * 32)).public
    )
    signer = table.federation.identities[P1 if lie == "signed by another" else P0]
    message = signed_hello(table.federation, "p0", honest, signer=signer, nonce=bytes(32), box_key=key)
    reason = {"signed by another": REASON.BAD_SIGNATURE, "another invitation": REASON.WRONG_SESSION}.get(
        lie, REASON.BAD_KEY
    )
    if lie == "another invitation":
        message = replace(honest, invitation=bytes(32))
    refuses(table, "server", "p0", message, reason)
    table.run()
    assert result_of(table) == exact_model(table, table.participants)


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("lie", ["one missing", "one too many"])
def test_shares_for_all_neighbours_and_no_others(scheme: str, lie: str) -> None:
    table = lying_table(scheme, 5)
    honest = until(table, SealedShares, sender="p0").message
    assert isinstance(honest, SealedShares)
    boxes = dict(honest.boxes)
    if lie == "one missing":
        del boxes[P1]
    else:
        boxes[P0] = bytes(80)
    refuses(table, "server", "p0", replace(honest, boxes=boxes), REASON.BAD_SHARE)
    table.run()
    assert result_of(table) == exact_model(table, table.participants)


@pytest.mark.parametrize("scheme", SECURE)
def test_an_upload_without_shares_is_refused(scheme: str) -> None:
    """Nobody could remove its self mask."""
    table = lying_table(scheme, 6)
    table.tamper = altering(SealedShares, "p5", lambda message: None)
    other = until(table, MaskedInput, sender="p0").message
    refuses(table, "server", "p5", other, REASON.UNEXPECTED_MESSAGE)
    table.run()
    assert result_of(table) == exact_model(table, table.participants[:5])


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("lie", ["a key share of a survivor", "of a stranger", "from a dropped party"])
def test_shares_that_are_not_due_are_refused(scheme: str, lie: str) -> None:
    table = lying_table(scheme, 6)

    def tamper(flight: InFlight) -> Message | None:
        if isinstance(flight.message, MaskedInput) and flight.sender == "p5":
            return None
        return flight.message

    table.tamper = tamper
    honest = until(table, ReleasedShares, sender="p0").message
    assert isinstance(honest, ReleasedShares)
    share = honest.self_masks[P1]
    sender, message, reason = {
        "a key share of a survivor": (
            "p0",
            replace(honest, masking_keys={**honest.masking_keys, P1: share}),
            REASON.SURVIVOR_LIST,
        ),
        "of a stranger": (
            "p0",
            replace(honest, self_masks={**honest.self_masks, PartyId("stranger"): share}),
            REASON.SURVIVOR_LIST,
        ),
        "from a dropped party": ("p5", honest, REASON.SURVIVOR_LIST),
    }[lie]
    refuses(table, "server", sender, message, reason)
    table.run()
    assert result_of(table) == exact_model(table, table.participants[:5])


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("lie", ["another key", "another list", "dropped party"])
def test_a_vote_by_the_wrong_key_or_for_another_list_does_not_count(scheme: str, lie: str) -> None:
    table = lying_table(scheme, 6)
    table.tamper = altering(MaskedInput, "p5", lambda message: None)
    agreed = until(table, SurvivorList, "p0").message
    honest = until(table, SurvivorSignature, sender="p0").message
    assert isinstance(agreed, SurvivorList)
    assert isinstance(honest, SurvivorSignature)
    other = replace(
        agreed, survivors=agreed.survivors[:4], dropped=agreed.survivors[4:] + agreed.dropped, total=4
    )
    signer = table.federation.identities[P1 if lie == "another key" else P0].signing
    digest = other.digest if lie == "another list" else agreed.digest
    message = SurvivorSignature(honest.stamp, signer.sign(SURVIVOR_DOMAIN, digest))
    if lie == "dropped party":
        refuses(table, "server", "p5", message, REASON.SURVIVOR_LIST)
    else:
        refuses(table, "server", "p0", message, REASON.BAD_SIGNATURE)
    table.run()
    assert result_of(table) == exact_model(table, table.participants[:5])


@pytest.mark.parametrize("lie", ["another key", "low order", "same key", "another model"])
def test_a_round_key_that_would_stop_everyone_is_refused_at_the_door(lie: str) -> None:
    table = lying_table("masked", 5)
    theirs = until(table, RoundKeys, sender="p1")
    table.drop(theirs)
    hand_over(table, theirs)
    honest = until(table, RoundKeys, sender="p0").message
    assert isinstance(honest, RoundKeys)
    assert isinstance(theirs.message, RoundKeys)
    key = {"low order": bytes(32), "same key": theirs.message.keys.key}.get(lie, honest.keys.key)
    model_hash = bytes(32) if lie == "another model" else honest.keys.model_hash
    signer = table.federation.identities[P1 if lie == "another key" else P0].signing
    record = replace(honest.keys, key=key, model_hash=model_hash)
    digest = round_key_digest(honest.stamp, P0, record)
    record = replace(record, signature=signer.sign(ROUND_KEY_DOMAIN, digest))
    reason = {"another key": REASON.BAD_SIGNATURE, "another model": REASON.WRONG_MODEL}.get(
        lie, REASON.BAD_KEY
    )
    refuses(table, "server", "p0", replace(honest, keys=record), reason)
    table.run()
    assert result_of(table) == exact_model(table, table.participants)


@pytest.mark.parametrize("scheme", PEERS)
@pytest.mark.parametrize("field", ["given", "taken"])
def test_wrong_revealed_keys_are_seen_in_the_tags(scheme: str, field: str) -> None:
    """The sum is not what its parties tagged: nobody commits, and the position stays as it was."""
    table = lying_table(scheme, 5)

    def tamper(flight: InFlight) -> Message | None:
        message = flight.message
        if isinstance(message, MaskedInput) and flight.sender == "p4":
            table.crash("p4")
            return None
        if isinstance(message, SeedsRevealed) and flight.sender == P0:
            return replace(message, **{field: {name: bytes(32) for name in getattr(message, field)}})
        return message

    table.tamper = tamper
    table.run()
    assert nobody_has_a_result(table)
    assert reasons(table, *table.participants[:4]) == {REASON.SUM_FALSIFIED}
    assert {participant(table, name).rounds_done for name in table.participants} == {0}


def beyond(table: Table, lie: str) -> tuple[int, int]:
    """The place of a word and what to add to it: a huge value, or a weight that takes away all others'."""
    encoding = table.federation.parameters.encoding
    trained = [input_of(table, name, 0) for name in table.participants]
    weights = sum(int(encoding.encode(one.payload, one.samples)[-2]) for one in trained)
    return {
        "value": (0, 2**18 << 40),
        "no weight": (-2, 1 - weights),
        "weight below zero": (-2, -1 << 43),
    }[lie]


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("tagged", [False, True])
@pytest.mark.parametrize("lie", ["value", "no weight", "weight below zero"])
def test_an_upload_beyond_the_clip_or_the_weights_opens_nothing(scheme: str, lie: str, tagged: bool) -> None:
    """A word that leaves the range of one upload carries into others, so that even its own tag does not fit it."""
    table = lying_table(scheme, 5)
    table.tamper = lying_uploader(table, "p3", *beyond(table, lie), tagged=tagged)
    table.run()
    assert nobody_has_a_result(table)
    failures = told(table, SERVER if scheme == "masked" else P0).failures
    assert {(one.reason, one.culprit) for one in failures} <= {
        (REASON.CHECK_FAILED, ""),
        (REASON.SUM_FALSIFIED, ""),
    }


@pytest.mark.parametrize("scheme", SECURE)
def test_a_weight_that_no_party_can_have_fails_the_check_even_if_its_author_tagged_it(scheme: str) -> None:
    """p3 says that it has many times the samples that all of them may have."""
    table = lying_table(scheme, 5)
    amount = 6 << int(table.federation.parameters.encoding.fractional_bits)
    table.tamper = lying_uploader(table, "p3", -2, amount, tagged=True)
    table.run()
    assert nobody_has_a_result(table)
    failures = told(table, SERVER if scheme == "masked" else P0).failures
    assert {(one.reason, one.culprit) for one in failures} == {(REASON.CHECK_FAILED, "")}
    require_mentions(failures[0].detail, "weights")
