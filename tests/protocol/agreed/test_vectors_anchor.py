"""Hashes of states, anchors, rosters, first models and logins are those of a second implementation's vectors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.make_vectors_anchor import VECTORS, build
from veilsum.protocol.agreed.anchor import Anchor, hash_state
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.identity import PublicIdentity, Role
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import PartyId
from veilsum.roles.broker.signed_login import login_digest
from veilsum.roles.federation.first_models import FirstModel


def cases(name: str) -> list[Any]:
    stored = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    return [pytest.param(case, id=case["name"]) for case in stored["cases"]]


def anchor_of(case: dict[str, Any]) -> Anchor:
    chain, state = bytes.fromhex(case["chain"]), bytes.fromhex(case["state_hash"])
    electorate = tuple(map(PartyId, case["electorate"]))
    return Anchor(chain, case["position"], state, electorate, case["checkpoint"])


def test_the_files_are_what_their_maker_writes() -> None:
    for name, content in build().items():
        assert json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8")) == content


@pytest.mark.parametrize("case", cases("anchor"))
def test_states_anchors_and_rosters_hash_as_written(case: dict[str, Any]) -> None:
    parts = (bytes.fromhex(case[key]) for key in ("before", "model_hash", "memory_hash"))
    assert hash_state(bytes.fromhex(case["chain"]), case["position"], *parts).hex() == case["state_hash"]
    anchor = anchor_of(case)
    assert anchor.digest.hex() == case["digest"]
    identities = tuple(
        PublicIdentity(PartyId(one["name"]), Role(one["role"]), bytes.fromhex(one["verify_key"]))
        for one in case["identities"]
    )
    assert Roster(case["version"], identities, anchor).digest.hex() == case["roster_digest"]
    assert Roster(case["version"], identities).digest.hex() == case["roster_digest_without"]


@pytest.mark.parametrize("case", cases("anchor_bad_electorate"))
def test_electorates_that_break_a_rule_are_refused(case: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        anchor_of(case)


@pytest.mark.parametrize("case", cases("first_model"))
def test_statements_hash_as_written(case: dict[str, Any]) -> None:
    stated = FirstModel(PartyId(case["name"]), case["length"], bytes.fromhex(case["model_hash"]))
    assert stated.digest.hex() == case["digest"]


@pytest.mark.parametrize("case", cases("login"))
def test_logins_hash_as_written(case: dict[str, Any]) -> None:
    identity = PublicIdentity(PartyId(case["name"]), Role(case["role"]), bytes.fromhex(case["verify_key"]))
    assert login_digest(identity, case["login"]).hex() == case["digest"]
