"""Ballots, votes, certificates, hellos and vouchers are those of the vectors, which a second implementation made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.make_vectors_chain import build
from tests.support.refusals import refusal
from tests.support.transcription import stored_vectors
from veilsum.protocol.agreed.parameters import Parameters
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.chain.hellos import HelloRecord
from veilsum.protocol.chain.statements import EnteredAttempt, require_vouched
from veilsum.protocol.chain.votes import VOTE_DOMAIN, Ballot, Certificate, require_certificate
from veilsum.protocol.crypto.identity import PublicIdentity, Role
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.session import SessionTerms
from veilsum.protocol.numbers.fixedpoint import plan

Case = dict[str, Any]
BAD = [
    pytest.param(name, case, id=f"{name}-{place}")
    for name in build()
    if "_bad_" in name
    for place, case in enumerate(stored_vectors(name)["cases"])
]


def parameters(colluders: int = 1) -> Parameters:
    return Parameters("masked", plan(5, 100, 8.0, 64).encoding, 4, colluders, 3)


def names(listed: list[str]) -> tuple[PartyId, ...]:
    return tuple(PartyId(name) for name in listed)


def ballot_of(case: Case) -> Ballot:
    hashes = (bytes.fromhex(case[name]) for name in ("before", "after"))
    return Ballot(case["position"], *hashes, names(case["electorate"]), names(case["survivors"]))


def roster_of(keys: dict[str, str]) -> Roster:
    return Roster(
        1,
        tuple(
            PublicIdentity(PartyId(name), Role.SERVER if name == SERVER else Role.CLIENT, bytes.fromhex(key))
            for name, key in sorted(keys.items())
        ),
    )


def check_certificate(case: Case) -> None:
    signatures = {PartyId(name): bytes.fromhex(one) for name, one in case["signatures"].items()}
    shown = Certificate(ballot_of(case), signatures)
    anchor, roster = bytes.fromhex(case["anchor"]), roster_of(case["keys"])
    require_certificate(anchor, roster, parameters(case["colluders"]), shown)


def entered(case: Case) -> EnteredAttempt:
    return EnteredAttempt(
        bytes.fromhex(case["session"]),
        case["attempt"],
        names(case["members"]),
        case.get("uploaded", True),
        names(case["released"]),
        bytes.fromhex(case.get("voucher", "")),
    )


def check_voucher(case: Case) -> None:
    roster = roster_of({SERVER: case["server"]})
    require_vouched(roster, case["position"], [entered(case)])


CHECKS = {"require_certificate": check_certificate, "require_vouched": check_voucher}


def test_the_files_are_what_their_maker_writes() -> None:
    for name, content in build().items():
        assert stored_vectors(name) == content


@pytest.mark.parametrize("case", stored_vectors("ballot")["cases"])
def test_a_ballot_has_its_digest_and_a_vote_its_signature(case: Case) -> None:
    digest = ballot_of(case).digest(bytes.fromhex(case["anchor"]))
    assert digest.hex() == case["digest"]
    key = SigningKey.from_private(Secret(bytes.fromhex(case["private"])))
    assert key.sign(VOTE_DOMAIN, digest).hex() == case["signature"]


@pytest.mark.parametrize("name", ["certificate", "voucher"])
def test_what_enough_signed_is_accepted(name: str) -> None:
    content = stored_vectors(name)
    for case in content["cases"]:
        CHECKS[content["operation"]](case)


@pytest.mark.parametrize(("name", "case"), BAD)
def test_a_bad_vector_is_refused_with_its_error(name: str, case: Case) -> None:
    content = stored_vectors(name)
    with refusal(Rejection, reason=AbortReason[content["error"]]):
        CHECKS[content["operation"]](case)


def test_the_vote_of_who_was_evicted_counts_for_nothing_and_its_place_stays() -> None:
    """All five voted, four are needed: one may be evicted, and not two."""
    case = stored_vectors("certificate")["cases"][1]
    keys = {name: key for name, key in case["keys"].items() if name != "alice"}
    check_certificate({**case, "keys": keys})
    del keys["bob"]
    with refusal(Rejection, reason=AbortReason.BAD_CERTIFICATE):
        check_certificate({**case, "keys": keys})


@dataclass(frozen=True)
class GivenRoster(Roster):
    """A roster with the hash of a vector."""

    given: bytes = b""

    @property
    def digest(self) -> bytes:
        return self.given


@dataclass(frozen=True)
class GivenParameters(Parameters):
    """Parameters with the hash of a vector."""

    given: bytes = b""

    @property
    def config_hash(self) -> bytes:
        return self.given


@pytest.mark.parametrize("case", stored_vectors("hello")["cases"])
def test_hellos_and_their_session_hash_as_written(case: Case) -> None:
    roster = GivenRoster(1, (), given=bytes.fromhex(case["roster_digest"]))
    known = parameters()
    agreed = GivenParameters(
        known.scheme,
        known.encoding,
        known.dimension,
        known.colluders,
        known.min_parties,
        given=bytes.fromhex(case["config_hash"]),
    )
    terms = SessionTerms(roster, agreed, bytes.fromhex(case["invitation"]))
    hellos = {}
    for said in case["hellos"]:
        keys = (bytes.fromhex(said[name]) for name in ("nonce", "box_key"))
        attempts = tuple(entered(one) for one in said["attempts"])
        hello = HelloRecord(*keys, said["position"], bytes(64), said["fresh"], attempts)
        assert terms.hello_digest(PartyId(said["name"]), hello).hex() == said["digest"]
        hellos[PartyId(said["name"])] = hello
    assert terms.open(hellos, case["position"]).id.hex() == case["session"]
