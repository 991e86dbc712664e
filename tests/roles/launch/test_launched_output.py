"""What launched processes write: read to the last line, logged, and never in their way."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import cast

from tests.support.brokers.broker import needs_mosquitto
from tests.support.federations import make_federation
from tests.support.launches import run_veilsum
from tests.support.refusals import require_mentions
from veilsum.roles.launch import children


def test_lines_beyond_the_limit_are_dropped_and_reading_goes_on() -> None:
    """Also where the long line arrives in pieces, and where the stream ends within one."""

    async def read(*pieces: bytes) -> list[bytes]:
        stream = asyncio.StreamReader(limit=10)
        lines: list[bytes] = []

        async def collect() -> None:
            lines.extend([line async for line in children.lines_of(stream)])

        reading = asyncio.create_task(collect())
        for piece in pieces:
            stream.feed_data(piece)
            await asyncio.sleep(0)
        stream.feed_eof()
        await reading
        return lines

    assert asyncio.run(read(b"one\n", b"x" * 50 + b"\ntwo\n", b"end")) == [b"one\n", b"two\n", b"end"]
    assert asyncio.run(read(b"x" * 30, b"x" * 30, b"x\ntwo\n", b"y" * 30, b"y")) == [b"two\n"]


def test_what_a_role_prints_is_logged_and_never_fills_its_pipe(tmp_path: Path) -> None:
    """Megabytes on both outputs: the process ends by itself, the log has its lines, and only facts are facts."""
    program = (
        "import sys; print('{}'); print('x' * 3000000); print('printed')\n"
        "sys.stderr.write('y' * 3000000 + '\\n' + '{\"fact\": \"told\"}\\n')"
    )
    logs = tmp_path / "logs"
    facts: list[str] = []

    def lacking(log: Path, error: OSError) -> None:
        raise AssertionError(f"{log}: {error}")

    async def run() -> int:
        pipe = asyncio.subprocess.PIPE
        started = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=pipe, stderr=pipe
        )
        assert started.stdout is not None
        assert started.stderr is not None
        async with asyncio.timeout(30):
            await asyncio.gather(
                children.keep_log(logs, "p1", started.stdout, lacking),
                children.keep_log(logs, "p1", started.stderr, lacking, facts.append),
                started.wait(),
            )
        return started.returncode or 0

    assert asyncio.run(run()) == 0
    assert [json.loads(line) for line in facts] == [{"fact": "told"}]
    assert "printed" in (logs / "p1.log").read_text()


def test_a_log_that_takes_no_line_keeps_nobody_from_hearing_them(tmp_path: Path) -> None:
    (tmp_path / "p1.log").symlink_to("/dev/full")
    heard: list[str] = []
    lacking: list[str] = []

    async def run() -> None:
        stream = asyncio.StreamReader()
        stream.feed_data(b"one\ntwo\n")
        stream.feed_eof()
        await children.keep_log(
            tmp_path, "p1", stream, lambda log, error: lacking.append(f"{log}: {error}"), heard.append
        )

    asyncio.run(run())
    assert heard == ["one\n", "two\n"]
    assert len(lacking) == 2
    require_mentions(lacking[0], tmp_path / "p1.log", "space")


@needs_mosquitto
def test_a_launch_whose_logs_find_no_room_has_all_its_rounds_and_says_so_once(tmp_path: Path) -> None:
    loaded = make_federation(tmp_path / "fed", "masked", 3)
    (loaded.folder / "logs").mkdir()
    for name in ("server", "p1"):
        (loaded.folder / "logs" / f"{name}.log").symlink_to("/dev/full")
    out = tmp_path / "out.json"
    launched = run_veilsum("launch", str(loaded.folder), "--json", str(out))
    assert launched.returncode == 0, launched.stdout + launched.stderr
    figures = json.loads(out.read_text())
    assert len(figures["rounds"]) == loaded.config.rounds
    assert len([text for text in figures["warnings"] if "server.log" in text and "space" in text]) == 1
    assert "Traceback" not in launched.stdout + launched.stderr


def test_a_line_of_a_thousand_brackets_is_a_line_like_any_other() -> None:
    """Only a party's own code writes it, past Python's standard error; it would have stopped everybody."""
    child = children.Child("p1", cast(children.Process, None))
    assert child.take("[" * 100_000) is None
    assert child.take('{"fact": "told"}') == {"fact": "told"}
