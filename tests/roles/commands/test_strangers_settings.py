"""No command that looks, or lacks the key, runs code of a folder: not as a stranger signed it, nor changed since."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.roles.commands.test_strangers_folder import own_federation
from veilsum.protocol.crypto.identity import Role
from veilsum.roles.cli import main as cli
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.federation.enrolment import create_federation, create_party
from veilsum.roles.federation.folder import load_federation
from veilsum.roles.federation.pins import pin_organiser
from veilsum.roles.views.file import load_view, save_view

WITHIN_S = 300.0
COMMANDS = (
    "roster checkpoint . --position 0 --state-hash {zeros}",
    "roster checkpoint . --position 0 --state-hash {zeros} --evict p1 --electorate p2,p3",
    "roster checkpoint . --from p1",
    "roster checkpoint . --position 0 --state-hash {zeros} --yes --organiser {organiser}",
    "roster show .",
    "roster pin . --key {mine} --fingerprint 0000",
    "roster add . {new} --organiser {organiser}",
    "roster evict . p1 --organiser {organiser}",
    "roster sign . --organiser {organiser}",
    "roster sign . --organiser {mine}",
    "roster sign . --new-chain",
    "roster sign . --new-chain --yes --organiser {organiser}",
    "roster observer . observer-new --out {mine}/observer",
    "roster observer . observer-1 --revoke",
    "keys first-model . --key {mine}",
    "init . --scheme masked --parties 3 --task digits",
    "plan --parties 3 --max-weight 9 --clip 8",
    "status . --seconds 0.1",
    "evaluate . --name p1",
    "evaluate . --model model.safetensors",
    "evaluate . --model model.safetensors --key {mine}",
    "export . --name p1 model.safetensors",
    "export . --name p1 model.safetensors --key {mine}",
    "broker . --configure --organiser {organiser}",
    "server federation.toml --key {mine}",
    "client federation.toml --name p1 --key {mine}",
    "client federation.toml --name p1",
    "launch .",
    "launch . --fresh",
    "audit run --view {view} --attack idlg --scale smoke",
    "audit run --view {schemes_view} --attack idlg --scale smoke",
)
DRIVER = """
import pathlib, sys
from veilsum.roles.cli.main import main
marker = pathlib.Path(sys.argv[1])
for words in sys.argv[2:]:
    try:
        main(words.split())
    except SystemExit:
        pass
    if marker.exists():
        sys.exit(f"{marker.read_text()}ran in: {words}")
print("all done")
"""


def as_signed(fed: Path) -> None:
    """What a party gets by post: nobody's keys are in it, and a stranger signed every byte."""
    shutil.rmtree(fed / "keys")
    shutil.rmtree(fed / "organiser")


def without_the_smallest_sum(fed: Path) -> None:
    """`min_parties` is left out, so that the scheme would have to be asked for its own."""
    file = fed / "federation.toml"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(line for line in lines if not line.startswith("min_parties")))


def other_code(fed: Path) -> None:
    """The files are not those that were signed."""
    for path in fed.glob("trap_*.py"):
        path.write_text(path.read_text() + "# somebody was here\n")


def other_names(fed: Path) -> None:
    """The settings name other files than those that were signed."""
    file = fed / "federation.toml"
    for path in list(fed.glob("trap_*.py")):
        path.rename(path.with_name(f"other_{path.name}"))
    file.write_text(file.read_text().replace("./trap_", "./other_trap_"))


def forged_view(folder: Path, scheme: str) -> Path:
    """A recorded view whose settings name code."""
    recorded, forged = folder / "recorded.view", folder / f"{scheme.partition(':')[0].strip('./')}.view"
    if not recorded.exists():
        assert cli.main(["audit", "run", "--attack", "analytic", "--save-view", str(recorded)]) == 0
    view = load_view(recorded)
    named = {"scheme": scheme, "task": "./trap_task.py:study", "defence": "./trap_defence.py:Shy"}
    save_view(replace(view, facts=replace(view.facts, settings={**view.facts.settings, **named})), forged)
    return forged


@pytest.mark.parametrize("change", [as_signed, without_the_smallest_sum, other_code, other_names])
def test_no_command_without_the_key_runs_code_that_the_settings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    fed, marker = own_federation(tmp_path, monkeypatch)
    own = tmp_path / "own"
    create_federation(own, FederationConfig(scheme="masked", parties=("p1", "p2", "p3"), task="vectors:9"))
    mine = tmp_path / "mine"
    create_party(mine, "p1", Role.CLIENT)
    create_party(tmp_path / "new", "p4", Role.CLIENT)
    pin_organiser(mine, load_federation(own).signed.organiser)
    change(fed)
    words = {
        "zeros": "00" * 32,
        "organiser": own / "organiser",
        "mine": mine,
        "new": tmp_path / "new",
        "view": forged_view(tmp_path, scheme="plain"),
        "schemes_view": forged_view(tmp_path, scheme="./trap_scheme.py:Veiled"),
    }
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(marker), *(one.format(**words) for one in COMMANDS)],
        cwd=fed,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.endswith("all done\n"), done.stderr
    assert "unexpected" not in done.stderr and "Traceback" not in done.stderr, done.stderr
