"""A learner with a defence: undefended at its limit, repeatable, and never weaker than it says."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from tests.support.defended import defended, make_task, undefended
from tests.support.refusals import refusal, require_mentions
from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.datasets.vectors import VectorsTask
from veilsum.roles.learning.defences.keeping import KeepingLearner
from veilsum.roles.learning.defences.packing import pack, unpack
from veilsum.roles.learning.factory import Defended, make_learner
from veilsum.roles.learning.training.settings import TrainingOptions
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.simulations.run.simulate import simulate

DELTA = TrainingOptions(local_epochs=2, batch_size=8, payload="delta")
PAYLOADS = [DELTA, replace(DELTA, payload="model", optimizer="adam"), TrainingOptions(payload="gradient")]
ALL = ["spn", "dp:sigma=0.1", "dp:sigma=1,clip=1", "ppdl:share=0.3,sigma=0.1", "sketch"]
TOGETHER = "spn+dp:sigma=1,clip=1+ppdl:share=0.3+sketch"


def with_dropout() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(144, 3),
    )


@pytest.mark.parametrize("options", PAYLOADS, ids=["delta", "model", "gradient"])
@pytest.mark.parametrize(
    "defence",
    [
        "spn:alpha2=0",
        "dp:sigma=0",
        "dp:sigma=0,mechanism=laplace",
        "ppdl:share=1",
        "sketch:ratio=1",
        "spn:alpha2=0+dp:sigma=0+sketch:ratio=1",
        "ppdl:share=1,sigma=0+spn:alpha2=0",
    ],
)
def test_a_defence_at_its_limit_gives_the_undefended_update_byte_for_byte(
    defence: str, options: TrainingOptions
) -> None:
    """Batch norm, dropout and their generators included, in the second round too."""
    task = make_task(with_dropout)
    party, plain = defended(defence, options, task), undefended(options, task)
    model = plain.initial_model()
    assert party.initial_model().tobytes() == model.tobytes()
    for round_ in (0, 1):
        expected, found = plain.train(model, round_), party.train(model, round_)
        assert found.payload.tobytes() == expected.payload.tobytes()
        assert found.loss == expected.loss


@pytest.mark.parametrize(
    ("family", "values"),
    [
        ("spn:alpha2={}", (0.1, 0.001, 0.00001)),
        ("dp:sigma={}", (0.1, 0.001, 0.00001)),
        ("dp:sigma={},mechanism=laplace", (0.1, 0.001, 0.00001)),
        ("ppdl:share={}", (0.05, 0.5, 0.999)),
    ],
)
def test_towards_its_limit_a_defence_changes_less_and_less(family: str, values: tuple[float, ...]) -> None:
    model = undefended(DELTA).initial_model()
    expected = undefended(DELTA).train(model, 0).payload
    changes = [
        float(np.linalg.norm(defended(family.format(value), DELTA).train(model, 0).payload - expected))
        for value in values
    ]
    assert changes[0] > changes[1] > changes[2]
    assert changes[2] < 0.02 * np.linalg.norm(expected)


@pytest.mark.parametrize("defence", [*ALL, TOGETHER])
def test_a_defended_round_repeats_and_survives_a_restart(defence: str) -> None:
    """A new process with the kept state goes on as the old one would have, byte for byte."""
    party = defended(defence, DELTA)
    model = party.initial_model()
    first = party.train(model, 0)
    assert party.train(model, 0).payload.tobytes() == first.payload.tobytes()
    kept = party.state()
    assert first.model is not None
    second = party.train(first.model, 1)
    other = defended(defence, DELTA, secret=99)
    other.restore(kept)
    assert other.train(first.model, 1).payload.tobytes() == second.payload.tobytes()
    assert other.state() == party.state()


@pytest.mark.parametrize("defence", [one for one in ALL if one != "sketch"])
def test_a_defence_changes_the_update_and_another_secret_changes_it_otherwise(defence: str) -> None:
    model = undefended(DELTA).initial_model()
    seen = {undefended(DELTA).train(model, 0).payload.tobytes()}
    seen |= {defended(defence, DELTA, secret=secret).train(model, 0).payload.tobytes() for secret in (1, 2)}
    assert len(seen) == 3


def broken(state: bytes) -> dict[str, bytes]:
    content = unpack(state, "state")
    head = unpack(content["guards"]["spn"], "head")
    return {
        "cannot be read": b"\xc1",
        "not the private state": pack([1, 2]),
        "version 2": pack({**content, "version": 2}),
        "belongs to defence": pack({**content, "defence": "dp:sigma=1.0"}),
        "32 bytes": pack({**content, "key": b"short"}),
        "holds": pack({**content, "guards": {}}),
        "is incomplete": pack({**content, "guards": {"spn": pack(5)}}),
        "model or bits have changed": pack({**content, "guards": {"spn": pack([0, 3, 3, *head[3:]])}}),
        "cannot be read:": pack({**content, "guards": {"spn": b""}}),
    }


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    party = defended("spn", DELTA)
    before = party.state()
    for message, state in broken(before).items():
        with pytest.raises(LocalProtocolError, match=message):
            party.restore(state)
        assert party.state() == before


def test_nothing_private_shows_in_a_representation() -> None:
    party = defended(TOGETHER, DELTA)
    secret = unpack(party.state(), "state")["key"]
    for shown in (party, party.guards, *party.guards.values(), party._fitter, party._key):
        assert secret.hex() not in repr(shown)
        assert repr(secret)[2:-1] not in repr(shown)


def test_the_state_is_on_disk_before_an_update_leaves(tmp_path: Path) -> None:
    file = tmp_path / "party" / "defence.state"
    party = defended("spn", DELTA)
    keeping = KeepingLearner(party, file)
    drawn = file.read_bytes()
    keeping.train(keeping.initial_model(), 0)
    assert file.read_bytes() == party.state() != drawn
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = defended("spn", DELTA, secret=3)
    KeepingLearner(again, file)
    assert again.state() == party.state()


def test_who_begins_anew_alone_keeps_its_secrets_and_account_and_says_so(tmp_path: Path) -> None:
    file, party = tmp_path / "party" / "defence.state", defended("dp:sigma=1,clip=1", DELTA)
    keeping = KeepingLearner(party, file)
    keeping.train(keeping.initial_model(), 0)
    kept = file.read_bytes()
    again = defended("dp:sigma=1,clip=1", DELTA, secret=3)
    said = KeepingLearner(again, file, fresh=True).notes(1)
    assert again.state() == file.read_bytes() == kept
    require_mentions(said[0], file, "kept", *" ".join(party.account()).split())
    assert again.account() == party.account() != []


def test_another_run_begins_another_account_and_tells_what_the_old_one_came_to(tmp_path: Path) -> None:
    file, party = tmp_path / "party" / "defence.state", defended("dp:sigma=1,clip=1", DELTA)
    keeping = KeepingLearner(party, file)
    keeping.train(keeping.initial_model(), 0)
    afresh = defended("dp:sigma=1,clip=1", DELTA, secret=4)
    drawn = afresh.state()
    said = KeepingLearner(afresh, file, fresh=True, another_run=True).notes(1)
    assert file.read_bytes() == afresh.state() == drawn != party.state()
    require_mentions(said[0], "new", "account", *" ".join(party.account()).split())
    assert not afresh.account()


@pytest.mark.parametrize("another_run", [True, False])
def test_a_private_state_that_cannot_be_taken_over_is_set_aside_and_never_overwritten(
    tmp_path: Path, another_run: bool
) -> None:
    """One of another defence, or a damaged one: its account cannot be told, so the file stays."""
    file = tmp_path / "party" / "defence.state"
    KeepingLearner(defended("dp:sigma=1,clip=1", DELTA), file)
    other = file.read_bytes()
    for number, defence in enumerate(("spn", "dp:sigma=1,clip=1"), 1):
        party = defended(defence, DELTA, secret=number + 1)
        drawn = party.state()
        said = KeepingLearner(party, file, fresh=True, another_run=another_run).notes(1)
        require_mentions(said[0], file, f"defence.state.{number}", "account")
        assert file.read_bytes() == party.state() == drawn
        assert file.with_name(f"defence.state.{number}").read_bytes() == other
        other = b"damaged"
        file.write_bytes(other)


def test_a_private_state_of_many_rounds_or_a_wide_head_can_be_read_again(tmp_path: Path) -> None:
    file, party = tmp_path / "party" / "defence.state", defended("spn:bits=4096", DELTA)
    KeepingLearner(party, file)
    assert file.stat().st_size > 1 << 16
    again = defended("spn:bits=4096", DELTA, secret=3)
    KeepingLearner(again, file)
    assert again.state() == party.state()


def test_a_learner_without_a_defence_has_nothing_to_keep(tmp_path: Path) -> None:
    with refusal(LocalProtocolError, "learner", "defence", "private", "state"):
        KeepingLearner(undefended(DELTA), tmp_path / "state")
    assert not isinstance(undefended(DELTA), Defended)


def test_a_defence_without_entropy_or_training_is_refused() -> None:
    spn = FederationConfig(payload="delta", defence="spn")
    with refusal(LocalProtocolError, "spn", "secrets", "entropy"):
        make_learner(spn, make_task(), "p1")
    with pytest.raises(LocalProtocolError, match="does not train"):
        make_learner(spn, VectorsTask(4), "p1", entropy=SeededEntropy(1))


@pytest.mark.parametrize("defence", ["spn+ppdl:share=0.3", "dp:sigma=0.01"])
def test_every_scheme_averages_defended_updates_to_the_same_model(defence: str) -> None:
    """They change what a party computes, not how it travels; plain differs in rounding, as without a defence."""
    config = FederationConfig(
        parties=("a", "b", "c"), rounds=1, payload="delta", local_epochs=1, batch_size=64, defence=defence
    )
    secure = {scheme: simulate(replace(config, scheme=scheme)) for scheme in ("mpc", "ampc", "masked")}
    assert len({run.model.tobytes() for run in secure.values()}) == 1
    plain = simulate(replace(config, scheme="plain"))
    assert np.allclose(plain.model, secure["ampc"].model, rtol=0, atol=1e-6)
    undefended = simulate(replace(config, scheme="plain", defence=""))
    assert not np.allclose(plain.model, undefended.model, rtol=0, atol=1e-3)
    assert list(plain.federation.defence_notes())
    assert not list(undefended.federation.defence_notes())


def test_a_simulation_states_what_every_party_has_spent() -> None:
    config = FederationConfig(
        scheme="plain",
        parties=("a", "b", "c"),
        rounds=1,
        payload="gradient",
        defence="dp:sigma=4,clip=1",
        split="iid",
    )
    notes = list(simulate(config).federation.defence_notes())
    assert any("every party: epsilon" in note and "1 rounds of 1 steps" in note for note in notes)
