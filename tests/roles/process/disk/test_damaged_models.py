"""Processes whose models are damaged on disk between a kill and --resume: the run ends with the bytes of one without.

Where the server of `masked` has no readable model left, the parties give it back.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from tests.roles.process.test_chain_processes import company_of
from tests.support.brokers.broker import needs_mosquitto
from tests.support.federations import Company, Role
from veilsum.roles.process.disk.part_files import COPY
from veilsum.roles.process.held_model import held_model
from veilsum.simulations.run.simulate import simulate

pytestmark = [needs_mosquitto, pytest.mark.long]

ROUNDS = 5
SETTINGS = {"rounds": ROUNDS, "seed": 11, "patience_s": 40.0}


def killed_after_two_rounds(company: Company) -> None:
    """Everyone is gone at once, somewhere in the third round."""
    roles = company.start_all()
    roles["server"].wait_for("round_committed", round=2)
    for role in roles.values():
        role.kill()


def newest_model(company: Company, name: str) -> Path:
    """The file of the newest model: what the newest checkpoint names."""
    folder = company.loaded.folder / "state" / name
    newest = max(folder.glob("checkpoint-*.json"))
    return folder / str(json.loads(newest.read_text())["parts"]["model"]["file"])


def flip_a_bit(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(content))


def damage_all_models(folder: Path) -> None:
    for path in folder.iterdir():
        if "model-" in path.name:
            flip_a_bit(path, random.Random(path.name))


def require_undisturbed(company: Company, roles: dict[str, Role]) -> None:
    """All end well, with the model of a simulation of the same settings."""
    for role in roles.values():
        assert role.end() == 0, role.said()
    expected = simulate(company.loaded.config).model
    assert expected is not None
    for name in company.loaded.roster.participants:
        model, rounds = held_model(company.loaded, name)
        assert rounds == ROUNDS
        assert model.tobytes() == expected.tobytes()


@pytest.mark.parametrize("run", range(3))
@pytest.mark.parametrize("scheme", ["masked", "ampc"])
def test_one_flipped_bit_in_the_newest_model_of_everyone_ends_no_run(
    tmp_path: Path, scheme: str, run: int
) -> None:
    chance = random.Random(run)
    with company_of(tmp_path, scheme, 4, **SETTINGS) as company:
        killed_after_two_rounds(company)
        holders = [name for name in company.names() if scheme == "masked" or name != "server"]
        for name in holders:
            file = newest_model(company, name)
            flip_a_bit(file.with_name(file.name + chance.choice(["", COPY])), chance)
        roles = company.start_all("--resume")
        require_undisturbed(company, roles)
        for name in holders:
            assert any("nothing is lost" in one["text"] for one in roles[name].told("warning"))


@pytest.mark.parametrize("loss", ["every model", "every checkpoint", "the folder"])
def test_a_server_of_masked_without_a_readable_model_is_given_it_back(tmp_path: Path, loss: str) -> None:
    """Killed alone: the parties wait for it, and go on with it."""
    with company_of(tmp_path, "masked", 4, **SETTINGS) as company:
        roles = company.start_all()
        roles["server"].wait_for("round_committed", round=2)
        roles["server"].kill()
        folder = company.loaded.folder / "state" / "server"
        if loss == "the folder":
            shutil.rmtree(folder)
        elif loss == "every checkpoint":
            for path in folder.glob("checkpoint-*"):
                flip_a_bit(path, random.Random(path.name))
        else:
            damage_all_models(folder)
        roles["server"] = company.start("server", "--resume")
        require_undisturbed(company, roles)
        taken = roles["server"].told("model_taken")
        assert len(taken) == 1
        assert taken[0]["rounds_done"] >= 2


def test_a_step_that_remembers_is_given_back_with_its_memory(tmp_path: Path) -> None:
    settings = {"server_optimizer": "adam:lr=0.01", "payload": "delta", "task": "digits"}
    with company_of(tmp_path, "masked", 3, **SETTINGS, **settings) as company:
        roles = company.start_all()
        roles["server"].wait_for("round_committed", round=2)
        roles["server"].kill()
        shutil.rmtree(company.loaded.folder / "state" / "server")
        roles["server"] = company.start("server", "--resume")
        require_undisturbed(company, roles)
