"""Looking at a stranger's folder runs nothing of it; who has its own keys there runs what its organiser signed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.brokers.broker import free_port
from tests.support.refusals import refusal, require_mentions
from veilsum.protocol.crypto.identity import Role
from veilsum.protocol.errors import AbortReason, ParameterError
from veilsum.roles.cli import main as cli
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.user_code import CodeAccess, UserCodeNotFound, UserCodeRefused, load_named
from veilsum.roles.config.values import CODE_DIGESTS
from veilsum.roles.federation.enrolment import create_federation, create_party, sign_again
from veilsum.roles.federation.folder import enter_federation, load_federation
from veilsum.roles.federation.pins import pin_organiser
from veilsum.roles.federation.signed_roster import RosterRefused
from veilsum.roles.learning.datasets.registry import load_task

TRAP = "with open({marker!r}, 'a') as told:\n    told.write(__name__ + ' ')\n"
TASK = """
import numpy as np
from torch import nn
from veilsum.roles.learning.datasets.supervised import SupervisedTask
from veilsum.roles.learning.task import Samples, TaskOptions

def study(options: TaskOptions) -> SupervisedTask:
    samples = Samples(np.eye(8, dtype=np.float32), np.arange(8) % 2)
    return SupervisedTask(samples, samples, lambda: nn.Sequential(nn.Linear(8, 2)))
"""
SCHEME = """
from veilsum.protocol.schemes import Masked

class Veiled(Masked):
    name = "veiled-by-" + __name__.removeprefix("./")
"""
DEFENCE = """
from dataclasses import dataclass
from typing import ClassVar
from veilsum.roles.learning.defences.defence import Defence

@dataclass(frozen=True)
class Shy(Defence):
    name: ClassVar[str] = "shy"

    def guard(self, key):
        raise NotImplementedError
"""
CODE = {"trap_task": TASK, "trap_scheme": SCHEME, "trap_defence": DEFENCE}
SHADOWS = (
    "sitecustomize",
    "usercustomize",
    "typing",
    "argparse",
    "json",
    "asyncio",
    "numpy",
    "cryptography",
    "torch",
)
LOOKING = (
    "--version",
    "--help",
    "status . --seconds 0.1",
    "roster show .",
    "roster pin . --key {mine} --fingerprint 0000",
    "evaluate . --name p1",
    "evaluate . --model model.safetensors",
    "evaluate . --name p1 --key {mine}",
    "export . --name p1 model.safetensors",
    "export . --protected model.safetensors",
    "broker . --configure --organiser {mine}",
    "roster sign . --organiser {mine}",
    "roster checkpoint . --position 0 --state-hash {zeros}",
    "client federation.toml --name mine --key {mine}",
    "audit list",
    "plan --parties 3 --max-weight 9 --clip 8",
    "keys new somebody --role client --out {mine}/../somebody",
)
WITHIN_S = 120.0


def write_code(folder: Path, marker: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in CODE.items():
        (folder / f"{name}.py").write_text(TRAP.format(marker=str(marker)) + text)


def own_federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str = "./{}.py", **settings: object
) -> tuple[Path, Path]:
    """A federation whose task, scheme and defence are code, and the file that tells which of it was run."""
    marker = tmp_path / "run"
    write_code(tmp_path / "code", marker)
    monkeypatch.chdir(tmp_path / "code")
    values = {
        "task": f"{form.format('trap_task')}:study",
        "scheme": f"{form.format('trap_scheme')}:Veiled",
        "defence": f"{form.format('trap_defence')}:Shy",
        "parties": ("p1", "p2", "p3"),
        "broker_tls": False,
        "broker_port": free_port(),
        **settings,
    }
    create_federation(tmp_path / "fed", FederationConfig.from_options(values))
    assert marker.exists(), "whoever makes a federation runs its code"
    marker.unlink()
    for name in CODE:
        sys.modules.pop(form.format(name), None)
    return tmp_path / "fed", marker


@pytest.fixture(params=["./{}.py", "{}"])
def stranger(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path]:
    """A complete folder of a stranger, keys and pins included, that names files or modules, full of traps."""
    with monkeypatch.context() as of_the_organiser:
        if request.param == "{}":
            monkeypatch.syspath_prepend(tmp_path / "code")
            of_the_organiser.setenv("PYTHONPATH", str(tmp_path / "code"), prepend=os.pathsep)
        fed, marker = own_federation(tmp_path, monkeypatch, request.param)
    write_code(fed, marker)
    if request.param != "{}":
        sign_again(fed, fed / "organiser")
        marker.unlink()
    for name in SHADOWS:
        (fed / f"{name}.py").write_text(TRAP.format(marker=str(marker)))
    return fed, marker


@pytest.mark.parametrize("program", ["veilsum", "python -m veilsum"])
def test_no_command_that_looks_runs_code_of_the_folder_that_it_is_in(
    stranger: tuple[Path, Path], tmp_path: Path, program: str
) -> None:
    fed, marker = stranger
    mine = tmp_path / "mine"
    create_party(mine, "mine", Role.CLIENT)
    script = tmp_path / "bin" / "veilsum"
    script.parent.mkdir()
    script.write_text("import sys\nfrom veilsum.roles.cli.main import main\nsys.exit(main())\n")
    start = [str(script)] if program == "veilsum" else ["-m", "veilsum"]
    root = Path(__file__).parents[3]

    def look(words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *start, *words.format(mine=mine, zeros="00" * 32).split()],
            cwd=fed,
            env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(look, LOOKING))
    assert not marker.exists(), f"{marker.read_text()} ran"
    for words, done in zip(LOOKING, results, strict=True):
        assert "unexpected" not in done.stderr and "Traceback" not in done.stderr, done.stderr
        if words.startswith(("roster show", "audit", "plan", "--", "keys")):
            assert done.returncode == 0, done.stderr


def test_what_needs_the_code_is_refused_by_name_with_a_way_on(
    stranger: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    fed, marker = stranger
    config = load_federation(fed).config
    with pytest.raises(UserCodeRefused):
        config.load_scheme()
    with refusal(ParameterError, config.scheme, config.defence.partition(":")[0]):
        config.require_workable()
    assert cli.main(["evaluate", str(fed), "--model", "model.safetensors"]) == 2
    require_mentions(capsys.readouterr().err, config.task, "--key")
    assert not marker.exists()


def test_settings_that_nobody_signed_are_refused_before_their_scheme_is_asked_for_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "run"
    fed = tmp_path / "fed"
    create_federation(fed, FederationConfig(scheme="masked", parties=("p1", "p2", "p3"), task="vectors:9"))
    write_code(fed, marker)
    file = fed / "federation.toml"
    lines = file.read_text().replace('scheme = "masked"', 'scheme = "./trap_scheme.py:Veiled"').splitlines()
    file.write_text("\n".join(line for line in lines if not line.startswith("min_parties")))
    with refusal(ParameterError, "min_parties", "./trap_scheme.py:Veiled"):
        enter_federation(fed, fed / "keys" / "p1")
    file.write_text("\n".join(line.replace("# min_parties = N", "min_parties = 3") for line in lines))
    with refusal(RosterRefused, "scheme", "./trap_scheme.py", reason=AbortReason.WRONG_CONFIG):
        enter_federation(fed, fed / "keys" / "p1")
    assert not marker.exists()


def test_a_party_runs_the_files_that_its_organiser_signed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed, marker = own_federation(tmp_path, monkeypatch)
    assert {path.name for path in fed.glob("*.py")} == {f"{name}.py" for name in CODE}
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(tmp_path / "code")
    loaded, _ = enter_federation(fed, fed / "keys" / "p1")
    assert loaded.config.task == "./trap_task.py:study"
    assert set(loaded.signed.agreed[CODE_DIGESTS]) == {f"./{name}.py" for name in CODE}
    loaded.config.require_workable()
    load_task(loaded.config.task, loaded.config.task_options(), loaded.config.code)
    assert sorted(marker.read_text().split()) == sorted(f"./{name}.py" for name in CODE)
    marker.unlink()
    task = fed / "trap_task.py"
    task.write_text(task.read_text() + "# somebody was here\n")
    with refusal(ParameterError, task, "signed"):
        load_task(loaded.config.task, loaded.config.task_options(), loaded.config.code)
    for enter in (load_federation, lambda path: enter_federation(path, fed / "keys" / "p1")):
        with refusal(RosterRefused, "./trap_task.py", "changed", reason=AbortReason.WRONG_CONFIG):
            enter(fed)
    assert not marker.exists()
    sign_again(fed, fed / "organiser")
    enter_federation(fed, fed / "keys" / "p1")


def test_a_party_that_pinned_another_organiser_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed, marker = own_federation(tmp_path, monkeypatch)
    create_federation(tmp_path / "other", FederationConfig(scheme="masked", parties=("p1", "p2", "p3")))
    mine = tmp_path / "mine"
    create_party(mine, "p1", Role.CLIENT)
    pin_organiser(mine, load_federation(tmp_path / "other").signed.organiser)
    with refusal(RosterRefused, "pinned", reason=AbortReason.WRONG_ROSTER):
        enter_federation(fed, mine)
    assert not marker.exists()


def test_evaluate_and_simulate_run_a_task_beside_the_settings_for_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fed, marker = own_federation(tmp_path, monkeypatch, scheme="plain", defence="", rounds=1, device="cpu")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["simulate", str(fed / "federation.toml"), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["task"] == "./trap_task.py:study"
    assert marker.read_text().split() == ["./trap_task.py"]
    from veilsum.roles.learning.first_model import ask_for_beginning
    from veilsum.roles.learning.model_files import layout_of, save_model

    loaded, _ = enter_federation(fed, fed / "keys" / "server")
    made = ask_for_beginning(loaded.config, fed / "federation.toml", None)
    task = load_task(loaded.config.task, loaded.config.task_options(), loaded.config.code)
    save_model(tmp_path / "model.safetensors", made.model, layout_of(task))
    evaluate = ["evaluate", str(fed), "--model", str(tmp_path / "model.safetensors"), "--json", "-"]
    assert cli.main([*evaluate, "--key", str(fed / "keys" / "p1")]) == 0
    assert "accuracy" in json.loads(capsys.readouterr().out)["metrics"]


def test_a_file_on_the_command_line_lies_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fed, _ = own_federation(tmp_path, monkeypatch, scheme="plain", defence="", rounds=1, device="cpu")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "trap_task.py").write_text(TASK.replace("% 2", "* 0"))
    monkeypatch.chdir(tmp_path / "here")
    words = ["simulate", str(fed / "federation.toml"), "--task", "./trap_task.py:study", "--json", "-"]
    assert cli.main(words) == 0
    assert json.loads(capsys.readouterr().out)["task"] == f"{tmp_path / 'here' / 'trap_task.py'}:study"


def test_a_file_runs_alone_and_inside_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside_it.py").write_text("")
    (tmp_path / "leaning.py").write_text("import beside_it")
    for text, told in (
        ("./leaning.py:x", "beside_it"),
        ("beside_it:x", "beside_it"),
        ("./../leaning.py:x", ".."),
        ("./gone.py:x", "gone.py"),
    ):
        with refusal(ParameterError, told):
            load_named("task", text)
    with refusal(UserCodeNotFound, "./leaning.py"):
        load_named("task", "./leaning.py:x", CodeAccess(tmp_path))
    assert "./leaning.py" not in sys.modules
