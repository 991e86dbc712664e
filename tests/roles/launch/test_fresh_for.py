"""One party whose state folder has nothing readable begins anew alone; the others keep what they have."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.support.brokers.broker import needs_mosquitto
from tests.support.federations import make_federation
from tests.support.invited import contents
from tests.support.launches import run_veilsum
from tests.support.refusals import require_mentions
from veilsum.roles.federation.folder import load_federation
from veilsum.roles.process.held_model import held_model

pytestmark = needs_mosquitto


def want_rounds(folder: Path, before: int, rounds: int) -> None:
    settings = folder / "federation.toml"
    text = settings.read_text()
    assert f"rounds = {before}\n" in text
    settings.write_text(text.replace(f"rounds = {before}\n", f"rounds = {rounds}\n"))


def damage(folder: Path) -> None:
    """One bit of every model, and of every copy."""
    files = list(folder.glob("*.f32*"))
    assert files
    for file in files:
        content = bytearray(file.read_bytes())
        content[0] ^= 1
        file.write_bytes(bytes(content))


@pytest.mark.parametrize("scheme", ["masked", "ampc"])
def test_the_advice_of_a_launch_can_be_typed_as_it_is_and_no_round_is_lost(
    tmp_path: Path, scheme: str
) -> None:
    loaded = make_federation(tmp_path / "a federation", scheme, 4)
    folder = loaded.folder
    assert run_veilsum("launch", str(folder)).returncode == 0
    want_rounds(folder, 2, 4)
    damage(folder / "state" / "p1")
    refused = run_veilsum("launch", str(folder), "--resume")
    assert refused.returncode == 2, refused.stdout
    last = refused.stdout.splitlines()[-1]
    require_mentions(last, "p1", "backup", "--fresh-for", "vote")
    words = shlex.split(last.partition("veilsum ")[2])
    assert words == ["launch", str(folder), "--resume", "--fresh-for", "p1"]
    launched = run_veilsum(*words)
    assert launched.returncode == 0, launched.stdout
    log = (folder / "logs" / "server.log").read_text().splitlines()
    rounds = [fact["round"] for fact in map(json.loads, log) if fact["fact"] == "round_committed"]
    assert rounds == [1, 2, 3, 4], "none was lost, and none was done again"
    held = [held_model(load_federation(folder), name) for name in loaded.roster.participants]
    assert {(model.tobytes(), done) for model, done in held} == {(held[0][0].tobytes(), 4)}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--resume", "--fresh-for", "p1", "--fresh-for", "p9"), ("p9", "p3")),
        (("--resume", "--fresh-for", "server"), ("server",)),
        (("--fresh-for", "p1"), ("--resume",)),
        (("--fresh", "--fresh-for", "p1"), ("--resume",)),
    ],
)
def test_a_party_that_is_not_there_or_others_that_do_not_go_on_are_a_wrong_request(
    tmp_path: Path, words: tuple[str, ...], named: tuple[str, ...]
) -> None:
    """Nothing was started or forgotten."""
    folder = make_federation(tmp_path / "fed", "masked", 3).folder
    (folder / "state" / "p1").mkdir(parents=True)
    (folder / "state" / "p1" / "mark").write_text("of an earlier run")
    before = contents(folder)
    launched = run_veilsum("launch", str(folder), *words)
    assert launched.returncode == 2
    require_mentions(launched.stderr.splitlines()[-1], "--fresh-for", *named)
    assert contents(folder) == before
