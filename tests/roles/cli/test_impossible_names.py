"""Whatever a user names that cannot be loaded, made or used: exit code 2, with what was given and what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.refusals import mentions
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.schemes.masked import Masked
from veilsum.protocol.schemes.registry import register, scheme_names
from veilsum.roles.cli import main as cli
from veilsum.roles.cli.exit_codes import EXIT_BAD_REQUEST

SIMULATE = ("simulate", "--parties", "3", "--rounds", "1")
COMMANDS = {
    "scheme": (*SIMULATE, "--task", "vectors:8", "--scheme"),
    "defence": (*SIMULATE, "--task", "digits", "--scheme", "plain", "--defence"),
    "task": (*SIMULATE, "--task"),
    "attack": ("audit", "run", "--attack"),
}
FILES = {
    "raising_on_import": "raise RuntimeError('no licence')",
    "leaving_on_import": "raise SystemExit(0)",
    "not_python": "def f(:",
}
MODULES = [".", "..", "..up", "a..b", "sys.", *(f"./{name}.py" for name in FILES), "./missing.py"]
IMPOSSIBLE = "tests.examples.impossible"


@pytest.fixture
def folder_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


@pytest.mark.usefixtures("folder_of_a_user")
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("what", COMMANDS)
def test_a_module_that_cannot_be_imported_is_named(
    what: str, module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*COMMANDS[what], f"{module}:X"]) == EXIT_BAD_REQUEST
    error = capsys.readouterr().err
    assert f"{what} '{module}:X'" in error
    assert "package.module:" in error or "correct" in error
    assert "unexpected" not in error


@pytest.mark.parametrize(
    ("what", "name", "told"),
    [
        ("scheme", "FailingScheme", "no licence"),
        ("scheme", "DemandingScheme", "wanted"),
        ("scheme", "ColonScheme", "a:b"),
        ("scheme", "NamelessScheme", "name"),
        ("defence", "DemandingDefence", "strength"),
        ("defence", "RulelessDefence", "strength"),
        ("defence", "FailingDefence", "no licence"),
        ("defence", "NamelessDefence", "name"),
        ("defence", "GuardlessDefence", "guard(key)"),
        ("attack", "FailingAttack", "no licence"),
        ("attack", "DemandingAttack", "wanted"),
        ("attack", "IdleAttack", "method invert"),
        ("task", "FailingTask", "no licence"),
        ("task", "DemandingTask", "wanted"),
        ("task", "BrokenTask", "no licence"),
    ],
)
def test_a_class_that_cannot_be_made_or_used_is_named(
    what: str, name: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*COMMANDS[what], f"{IMPOSSIBLE}:{name}"]) == EXIT_BAD_REQUEST
    error = capsys.readouterr().err
    assert mentions(error, name)
    assert told in error
    assert "unexpected" not in error


@pytest.mark.parametrize("name", ["a:b", "", "a b", "a+b", 5, None])
def test_a_scheme_without_a_name_of_one_word_is_refused_at_registration(name: object) -> None:
    before = scheme_names()
    named = type("Odd", (Masked,), {"name": name})
    with pytest.raises(ParameterError) as caught:
        register(named)
    assert "Odd" in str(caught.value)
    assert repr(name) in str(caught.value)
    assert scheme_names() == before
