"""Dealt shares and group keys are those of the vectors, which a second implementation made."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.make_vectors_shares import build
from tests.support.refusals import refusal
from tests.support.transcription import stored_vectors
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.agreement import AgreementKey
from veilsum.protocol.crypto.boxes import open_box, seal_box
from veilsum.protocol.crypto.identity import PublicIdentity, Role
from veilsum.protocol.crypto.kdf import Purpose, derive_key
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId, SessionId
from veilsum.protocol.schemes.ampc.decomposition import group_key_of
from veilsum.protocol.secure_sum.dealt import DealtTree, SignedBox, require_signed, seed_hash, share_hash
from veilsum.protocol.secure_sum.group_key import GroupKey, dealer_of
from veilsum.protocol.wire.messages import Stamp

Case = dict[str, Any]


def stamp_of(case: Case) -> Stamp:
    return Stamp(SessionId(bytes.fromhex(case["session"])), case["round"], case["attempt"])


def many(values: list[str]) -> tuple[bytes, ...]:
    return tuple(bytes.fromhex(value) for value in values)


def check_dealt(case: Case) -> None:
    dealer = PartyId(case["dealer"])
    roster = Roster(1, (PublicIdentity(dealer, Role.CLIENT, bytes.fromhex(case["key"])),))
    signature = bytes.fromhex(case["signature"])
    for one in case["holders"]:
        shown = SignedBox(bytes.fromhex(one["box"]), many(one["hashes"]), many(one["path"]), signature)
        require_signed(roster, stamp_of(case), dealer, PartyId(one["name"]), shown)


def test_the_files_are_what_their_maker_writes() -> None:
    for name, content in build().items():
        assert stored_vectors(name) == content


@pytest.mark.parametrize("case", stored_vectors("dealt")["cases"])
def test_a_dealer_signs_hashes_and_tree_as_written(case: Case) -> None:
    stamp, dealer = stamp_of(case), PartyId(case["dealer"])
    assert seed_hash(stamp, dealer, Secret(bytes.fromhex(case["seed"]))).hex() == case["seed_hash"]
    holders = {PartyId(one["name"]): one for one in case["holders"]}
    for holder, one in holders.items():
        for kind, share, hashed in zip(case["kinds"], one["shares"], one["hashes"], strict=True):
            assert share_hash(stamp, dealer, holder, kind, bytes.fromhex(share)).hex() == hashed
    tree = DealtTree(
        stamp,
        dealer,
        {holder: bytes.fromhex(one["box"]) for holder, one in holders.items()},
        {holder: many(one["hashes"]) for holder, one in holders.items()},
        bytes.fromhex(case["seed_hash"]),
    )
    assert tree.digest.hex() == case["digest"]
    assert all(tree.path_from(holder) == many(one["path"]) for holder, one in holders.items())
    check_dealt(case)


@pytest.mark.parametrize("case", stored_vectors("dealt_bad_signature")["cases"])
def test_what_the_dealer_did_not_sign_is_refused(case: Case) -> None:
    with refusal(Rejection, reason=AbortReason.BAD_SIGNATURE):
        check_dealt(case)


@pytest.mark.parametrize("case", stored_vectors("group_key_dealt")["cases"])
def test_a_group_key_is_dealt_in_the_box_of_the_vector(case: Case) -> None:
    stamp, dealer, receiver = stamp_of(case), PartyId(case["dealer"]), PartyId(case["receiver"])
    assert dealer_of(SessionId(stamp.session), [PartyId(name) for name in case["members"]]) == dealer
    keys = [
        AgreementKey.from_private(Secret(bytes.fromhex(case[f"{end}_private"])))
        for end in ("dealer", "receiver")
    ]
    context, content = stamp.key_context(dealer, receiver), bytes.fromhex(case["group_key"])
    for ours, theirs in (keys, keys[::-1]):
        key = derive_key(ours.agree(theirs.public), Purpose.GROUP_KEY, context)
        assert seal_box(key, content, b"").hex() == case["box"]
        assert open_box(key, bytes.fromhex(case["box"]), b"") == content
    assert GroupKey.of(Secret(content)).id.hex() == case["id"]


@pytest.mark.parametrize("case", stored_vectors("group_key_common")["cases"])
def test_the_common_secrets_of_all_peers_make_the_group_key_of_the_vector(case: Case) -> None:
    group = group_key_of(
        {PartyId(name): Secret(bytes.fromhex(value)) for name, value in case["secrets"].items()}
    )
    assert (group.key.reveal().hex(), group.id.hex()) == (case["group_key"], case["id"])
