"""An output goes where it was asked for: into a file whole, and through what is no regular file."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.simulations.audit.test_audit_command import forbid_playing
from tests.support.refusals import refusal, require_mentions
from veilsum.roles.cli import main as cli
from veilsum.roles.cli import output_file
from veilsum.roles.cli.exit_codes import EXIT_FAILED
from veilsum.roles.cli.output_file import write_output
from veilsum.roles.federation.private_files import PrivateFileError
from veilsum.roles.learning.datasets.vectors import VectorsTask
from veilsum.roles.learning.model_files import layout_of, save_model
from veilsum.roles.views.file import save_view
from veilsum.roles.views.view import PublicFacts, View

PLAN = ["plan", "--parties", "10", "--max-weight", "100", "--clip", "8", "--bits", "64"]


def plan_into(target: Path | str) -> int:
    return cli.main([*PLAN, "--json", str(target)])


def test_a_link_stays_a_link_and_the_file_behind_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    file, link = tmp_path / "there" / "file.json", tmp_path / "link.json"
    file.write_text("old")
    link.symlink_to(file)
    assert plan_into(link) == 0
    assert link.is_symlink()
    assert json.loads(file.read_text())
    assert sorted(tmp_path.rglob("*")) == [link, file.parent, file]


def test_a_link_that_leads_to_nothing_yet_makes_the_file_it_names(tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to("file.json")
    assert plan_into(link) == 0
    assert link.is_symlink()
    assert json.loads((tmp_path / "file.json").read_text())


def test_a_pipe_gets_the_document_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    assert plan_into(pipe) == 0
    reader.join(10)
    assert json.loads(got[0])
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_pipe_that_nobody_reads_is_an_error_and_no_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output_file, "READER_WITHIN_S", 0.0)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert plan_into(pipe) == 1
    require_mentions(capsys.readouterr().err, str(pipe), "nobody", "pipe")


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.write_bytes(b"x")
    except PermissionError:
        device = Path(os.devnull)
        if os.access(device.parent, os.W_OK):
            pytest.skip("a failure would destroy the device of this machine")
    assert plan_into(device) == 0
    assert stat.S_ISCHR(device.stat().st_mode)


def test_standard_output_by_its_path_gets_table_and_document_one_after_the_other(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        command = [sys.executable, "-m", "veilsum", *PLAN, "--json", "/dev/stdout"]
        assert subprocess.run(command, stdout=out, timeout=60, check=False).returncode == 0
    table, brace, document = (tmp_path / "out").read_text().partition("\n{")
    assert "bits" in table
    assert json.loads(brace + document)


@pytest.mark.parametrize(
    "command", [PLAN, ["plan", "--help"], ["help"], ["--version"], [*PLAN, "--json", "-"]], ids=" ".join
)
def test_a_full_disk_behind_standard_output_is_told_as_such(command: list[str]) -> None:
    """And the interpreter does not end with a code of its own, because it could not write what was left."""
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "veilsum", *command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == EXIT_FAILED
    require_mentions(ended.stderr.splitlines()[-1], "error", "standard", "output")


def test_what_is_written_through_and_is_full_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_into("/dev/full") == EXIT_FAILED
    assert "veilsum: error: /dev/full: " in capsys.readouterr().err
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def through_a_pipe(folder: Path, write: Callable[[Path], object]) -> bytes:
    pipe, got = folder / "pipe", []
    os.mkfifo(pipe, 0o600)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write(pipe)
    reader.join(10)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    return got[0]


def test_a_model_and_a_view_go_through_a_pipe_and_through_a_link(tmp_path: Path) -> None:
    """What a command writes is the same whatever takes it, and the pipe stays a pipe, the link a link."""
    model, layout = np.arange(7, dtype=np.float32), layout_of(VectorsTask.parse("7"))
    view = View(("server",), PublicFacts({"scheme": "plain"}, 7, (1,), 1), model, ())
    writers = {
        "model": lambda path: save_model(path, model, layout),
        "view": lambda path: save_view(view, path),
    }
    for name, write in writers.items():
        folder = tmp_path / name
        folder.mkdir()
        content = through_a_pipe(folder, write)
        link, file = folder / "link", folder / "file"
        file.touch(0o600)
        link.symlink_to(file)
        write(link)
        assert link.is_symlink()
        assert file.read_bytes() == content
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_a_private_file_never_goes_through_a_pipe_of_another_user(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made a pipe of that name in a shared folder waits there, and reads nothing."""
    pipe = waited_at(tmp_path / "server.view", mode)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with refusal(PrivateFileError, tmp_path / "server.view", path=tmp_path / "server.view"):
        write_output(tmp_path / "server.view", b"secret", private=True)
    require_nothing_read(pipe)
    write_output(tmp_path / "server.view", b"public")
    assert os.read(pipe, 99) == b"public"
    os.close(pipe)


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o622])
def test_a_private_file_goes_through_no_pipe_that_others_can_reach(mode: int, tmp_path: Path) -> None:
    pipe = waited_at(tmp_path / "pipe", mode)
    with refusal(PrivateFileError, tmp_path / "pipe", f"{mode:o}"):
        write_output(tmp_path / "pipe", b"secret", private=True)
    require_nothing_read(pipe)
    os.close(pipe)


def test_a_pipe_that_was_swapped_after_it_was_looked_at_gets_no_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is opened decides: the name may lead elsewhere by then."""
    (tmp_path / "other").mkdir()
    waited_at(tmp_path / "pipe", 0o600)
    pipe = waited_at(tmp_path / "other" / "pipe", 0o644)
    monkeypatch.setattr(
        output_file, "_open_passage", lambda _: os.open(tmp_path / "other" / "pipe", os.O_WRONLY)
    )
    with refusal(PrivateFileError, tmp_path / "pipe"):
        write_output(tmp_path / "pipe", b"secret", private=True)
    require_nothing_read(pipe)


def test_a_view_into_a_pipe_of_others_is_refused_before_anything_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forbid_playing(monkeypatch)
    pipe = waited_at(tmp_path / "server.view", 0o666)
    assert cli.main(["audit", "run", "--save-view", str(tmp_path / "server.view")]) == 2
    require_mentions(capsys.readouterr().err, tmp_path / "server.view", "666")
    require_nothing_read(pipe)


def test_a_private_file_may_go_where_nothing_is_kept() -> None:
    write_output(Path(os.devnull), b"secret", private=True)
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def waited_at(pipe: Path, mode: int) -> int:
    """A pipe of this mode, with somebody who reads as soon as there is something."""
    os.mkfifo(pipe)
    pipe.chmod(mode)
    return os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)


def require_nothing_read(pipe: int) -> None:
    assert os.read(pipe, 99) == b""


def test_a_socket_is_refused_by_name(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        with pytest.raises(OSError, match="socket") as refused:
            write_output(tmp_path / "socket", "text")
    assert refused.value.filename == str(tmp_path / "socket")


def test_a_file_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch(0o640)
    write_output(file, "text")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_disk_that_is_full_is_told_with_the_file_and_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_text("old")
    limited = (
        "import resource, sys; from veilsum.roles.cli.main import main;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", limited, *PLAN, "--json", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(f"veilsum: error: {file}: ")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
