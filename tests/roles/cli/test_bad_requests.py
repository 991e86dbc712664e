"""A request that cannot work exits with 2, in one sentence that names what to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.federations import make_federation
from tests.support.refusals import require_mentions
from veilsum.protocol.errors import AbortReason
from veilsum.roles.broker import connect
from veilsum.roles.cli import main as cli
from veilsum.roles.cli.exit_codes import EXIT_BAD_REQUEST, EXIT_FAILED, EXIT_OK
from veilsum.roles.federation.signed_roster import ROSTER_FILE

SIMULATE = ("simulate", "--parties", "3", "--rounds", "1")
VECTORS = (*SIMULATE, "--task", "vectors:8")


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ((*SIMULATE, "--task", "no.such:thing"), "no.such module"),
        ((*SIMULATE, "--task", "os:no_such"), "os no_such function"),
        ((*SIMULATE, "--task", "os:getcwd"), "os:getcwd TypeError"),
        ((*SIMULATE, "--task", "mnist"), "mnist --data"),
        ((*SIMULATE, "--task", "mnist", "--data", "no/such/folder"), "no/such/folder"),
        ((*VECTORS, "--compare", "central"), "vectors learns"),
        ((*VECTORS, "--scheme", "perturbed"), "vectors:8 model"),
    ],
    ids=lambda value: " ".join(value[5:]) if isinstance(value, tuple) else "",
)
def test_a_simulation_that_cannot_work_exits_with_2(
    arguments: tuple[str, ...],
    names: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == EXIT_BAD_REQUEST
    error = capsys.readouterr().err
    require_mentions(error, *names.split())
    assert "unexpected" not in error


def test_a_folder_that_is_no_federation_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without settings, and without a roster: each time the missing file and how to get one."""
    assert cli.main(["roster", "show", str(tmp_path / "nodir")]) == EXIT_BAD_REQUEST
    error = capsys.readouterr().err
    require_mentions(error, "federation.toml")
    assert "veilsum init" in error
    folder = make_federation(tmp_path / "fed").folder
    (folder / ROSTER_FILE).unlink()
    assert cli.main(["roster", "show", str(folder)]) == EXIT_BAD_REQUEST
    require_mentions(capsys.readouterr().err, ROSTER_FILE)


def test_a_status_without_a_broker_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is wrong with the request, so the exit code is 1."""
    monkeypatch.setattr(connect, "LISTEN_WITHIN_S", 0.2)
    folder = make_federation(tmp_path / "fed").folder
    assert cli.main(["status", str(folder)]) == EXIT_FAILED
    assert f"veilsum broker {folder}" in capsys.readouterr().err


def test_a_measured_round_that_fails_says_why_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("bench", "rounds", "--scheme", "plain", "--parties", "3", "--dim", "8", "--drop", "3")
    assert cli.main(arguments) == EXIT_FAILED
    error = capsys.readouterr().err
    assert AbortReason.COHORT_TOO_SMALL.value in error
    assert "RunFailed" not in error


@pytest.mark.parametrize("wrong", [("--model", "nomodel"), ("--device", "cuda:99")])
def test_a_model_or_device_that_is_not_there_is_a_wrong_request(wrong: tuple[str, str]) -> None:
    assert cli.main(["simulate", "--scheme", "plain", "--task", "digits", *wrong]) == 2


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One federation that nothing here may change."""
    return make_federation(tmp_path_factory.mktemp("requests") / "fed").folder


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("request_line", "names"),
    [
        ("roster add FED nofile.json", "nofile.json"),
        ("simulate --task vectors:5 --split own", "split own vectors:5"),
        ("simulate --task vectors:5 --split own --data p1=.", "split own vectors:5"),
        ("init new --task vectors:5 --split own", "split own vectors:5"),
        ("roster add FED stray.txt", "stray.txt"),
        ("roster evict FED p9", "p9 roster.json"),
        ("roster evict FED sever", "sever server?"),
        ("roster sign FED --organiser nokeys", "nokeys"),
        ("roster sign FED --organiser FED/keys/p1", "organiser"),
        ("roster pin FED --key nokeys --fingerprint 00", "nokeys"),
        ("roster pin FED --key FED/keys/p1 --fingerprint 00", "fingerprint 00"),
        ("roster checkpoint FED --from p9", "p9 roster"),
        ("export FED --name p9 model.safetensors", "p9 roster"),
        ("export FED --name p1 model.safetensors", "FED/state/p1"),
        ("evaluate FED --model no.safetensors", "no.safetensors"),
        ("evaluate FED --model stray.txt", "stray.txt"),
        ("evaluate FED --name p9", "p9 roster"),
        ("evaluate FED --key nokeys --name p1", "nokeys"),
        ("keys new p1 --out FED/keys/p1", "FED/keys/p1/identity.json"),
        ("keys first-model FED --key nokeys", "nokeys"),
        ("keys first-model FED --key FED/keys/p1 --init nofile", "nofile"),
        ("status FED --key nokeys", "nokeys/broker-password --key"),
        ("broker FED --configure --organiser nokeys", "nokeys"),
        ("init new --init nofile --task vectors:8 --scheme masked", "nofile"),
    ],
)
def test_a_file_a_key_or_a_name_that_is_not_there_is_a_wrong_request_and_changes_nothing(
    request_line: str,
    names: str,
    federation: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stray.txt").write_text("stray")
    before = content_of(federation)
    assert cli.main(request_line.replace("FED", str(federation)).split()) == EXIT_BAD_REQUEST
    error = capsys.readouterr().err
    require_mentions(error, *names.replace("FED", str(federation)).split())
    assert error.count("\n") == 1
    assert content_of(federation) == before
    assert [path.name for path in tmp_path.iterdir()] == ["stray.txt"]


def test_settings_changed_after_signing_are_a_wrong_request_that_names_both_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_federation(tmp_path / "fed").folder
    settings = folder / "federation.toml"
    settings.write_text(settings.read_text().replace('scheme = "masked"', 'scheme = "plain"'))
    for line in (["export", str(folder), "--name", "p1", str(tmp_path / "m")], ["status", str(folder)]):
        assert cli.main(line) == EXIT_BAD_REQUEST
        require_mentions(capsys.readouterr().err, "scheme", "'plain'", "'masked'", "veilsum", "sign")


def test_a_federation_that_cannot_be_made_leaves_no_folder_in_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether there was none before, or an empty one; a folder that holds something is never touched."""
    monkeypatch.chdir(tmp_path)
    line = ["init", "fed", "--scheme", "masked", "--task", "vectors:8", "--broker-port", "18883"]
    assert cli.main([*line, "--init", "nofile"]) == EXIT_BAD_REQUEST
    assert not list(tmp_path.iterdir())
    (tmp_path / "fed").mkdir()
    assert cli.main([*line, "--init", "nofile"]) == EXIT_BAD_REQUEST
    assert not list((tmp_path / "fed").iterdir())
    assert cli.main(line) == EXIT_OK
    before = content_of(tmp_path)
    assert cli.main([*line, "--init", "nofile"]) == EXIT_BAD_REQUEST
    assert content_of(tmp_path) == before


@pytest.mark.parametrize("command", ["init", "new"])
@pytest.mark.parametrize("folder", ["/proc/none/fed", "link"])
def test_a_folder_that_cannot_be_made_is_a_wrong_request(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    folder: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to("/nowhere/at/all")
    assert cli.main([command, folder, "--scheme", "masked"]) == EXIT_BAD_REQUEST
    require_mentions(capsys.readouterr().err, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_two_parties_are_told_to_become_more_and_not_to_protect_each_other_less(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["simulate", "--parties", "2", "--task", "vectors:8"]) == EXIT_BAD_REQUEST
    error = capsys.readouterr().err
    require_mentions(error, "min_parties", 3, 2, "add")
    assert "lower" not in error
    assert "at most" not in error
