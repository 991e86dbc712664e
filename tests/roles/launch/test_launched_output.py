"""What launched processes write: read to the last line, logged, and never in their way."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.support.federations import make_federation
from veilsum.roles.launch import processes


def test_lines_beyond_the_limit_are_dropped_and_reading_goes_on() -> None:
    """Also where the long line arrives in pieces, and where the stream ends within one."""

    async def read(*pieces: bytes) -> list[bytes]:
        stream = asyncio.StreamReader(limit=10)
        lines: list[bytes] = []

        async def collect() -> None:
            lines.extend([line async for line in processes._lines(stream)])

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
    loaded = make_federation(tmp_path / "fed", "plain", 2)
    program = (
        "import sys; print('{}'); print('x' * 3000000); print('printed')\n"
        "sys.stderr.write('y' * 3000000 + '\\n' + '{\"fact\": \"told\"}\\n')"
    )

    async def run() -> processes.Child:
        launched = processes.Launch(loaded)
        pipe = asyncio.subprocess.PIPE
        started = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=pipe, stderr=pipe
        )
        child = processes.Child("p1", started)
        assert started.stdout is not None
        assert started.stderr is not None
        async with asyncio.timeout(30):
            await asyncio.gather(
                launched._read(child, started.stdout, facts=False),
                launched._read(child, started.stderr, facts=True),
                started.wait(),
            )
        return child

    child = asyncio.run(run())
    assert child.code == 0
    assert child.facts == [{"fact": "told"}]
    assert "printed" in (loaded.folder / processes.LOGS_FOLDER / "p1.log").read_text()
