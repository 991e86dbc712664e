"""Processes of a federation of which one kept the state of a trial run that the others forgot."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.brokers.broker import needs_mosquitto
from tests.support.federations import Company, Role, broker_of, change_settings, make_federation
from tests.support.refusals import require_mentions
from veilsum.roles.federation.folder import LoadedFederation

pytestmark = [needs_mosquitto, pytest.mark.long]

SECONDS = 400.0
PATIENT = {"opening_s": 15.0, "phase_s": 20.0, "training_s": 15.0, "patience_s": 45.0}


def run(fed: LoadedFederation, names: list[str], *arguments: str) -> list[Role]:
    with Company(fed) as company:
        roles = [company.start(name, *arguments) for name in names]
        for role in roles:
            role.end(SECONDS)
    return roles


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("scheme", ["masked", "ampc"])
def test_the_last_line_of_every_process_names_the_party_with_another_model_and_says_what_to_do(
    tmp_path: Path, scheme: str
) -> None:
    """Without the last party the others are too few: that follows from it, and is not what they say first."""
    fed = make_federation(tmp_path / "fed", scheme, 4, min_parties=3, rounds=1, **PATIENT)
    state, kept = fed.folder / "state", tmp_path / "kept"
    broker = broker_of(fed, tmp_path / "broker")
    broker.start()
    try:
        run(fed, ["server", "p1", "p2", "p3"])
        shutil.move(state / "p1", kept)
        shutil.rmtree(state)
        run(fed, ["server", "p1", "p2", "p3", "p4"])
        shutil.rmtree(state / "p1")
        shutil.move(kept, state / "p1")
        roles = run(change_settings(fed, rounds=3), ["server", "p1", "p2", "p3"], "--resume")
    finally:
        broker.stop()
    for role in roles:
        last = role.facts[-1]
        assert (role.process.returncode, last["fact"]) == (1, "run_failed"), role.said()
        require_mentions(last["detail"].partition("then: ")[0], "p1", "another", "model", "--fresh")
    if scheme == "masked":
        (holds, *_) = roles[1].told("holds")
        (others, *_) = roles[0].told("holds")
        for role in roles:
            require_mentions(role.facts[-1]["detail"], holds["state"][:8], others["state"][:8])
