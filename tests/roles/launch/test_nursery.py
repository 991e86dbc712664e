"""The nursery: what it forks draws its own randomness, has no threads of others, and its own words in `ps`."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.federations import wait_until
from tests.support.refusals import refusal, require_mentions
from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.launch import nursery
from veilsum.roles.launch.nursery import Forked, Nursery
from veilsum.roles.launch.titles import Title

PROGRAM = """
import os, sys
os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
import atexit, json, random, subprocess, threading, time, uuid
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from Crypto.Random import get_random_bytes
from veilsum.protocol.crypto.agreement import AgreementKey
from veilsum.roles.launch import nursery_process
from veilsum.roles.process.entropy import system_entropy
from veilsum.transport.framing.datagrams import LIFE_BYTES

def draws():
    return {
        "life": system_entropy(LIFE_BYTES).hex(),
        "agreement": AgreementKey.generate(system_entropy).public.hex(),
        "openssl key": AESGCM.generate_key(256).hex(),
        "openssl x25519": X25519PrivateKey.generate().public_key().public_bytes_raw().hex(),
        "pycryptodome": get_random_bytes(16).hex(),
        "uuid": uuid.uuid4().hex,
        "random": random.random(),
        "numpy": np.random.random(),
        "numpy generator": np.random.default_rng().random(),
    }

class Shared:
    def __del__(self):
        print("taken apart", flush=True)

def child():
    if sys.argv[1:] == ["leave"]:
        sys.modules["shared"] = Shared()
        atexit.register(print, "at its end")
        sys.stdout.write("in a buffer, ")
        sys.exit(3)
    threads = nursery_process.count_threads() - 1  # the one that watches the lifeline
    shown = open("/proc/self/cmdline").read().rstrip("\\0").split("\\0")
    if "left" in sys.argv:
        behind = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        print(json.dumps({"left": behind.pid}))
        return
    opened = sorted(int(one) for one in os.listdir("/proc/self/fd"))
    print(json.dumps({"draws": draws(), "threads": threads, "shown": shown, "words": sys.argv, "open": opened}))

def set_session_late(set_session=os.setsid):
    time.sleep(0.5)
    set_session()

if __name__ == "__main__":
    if "LATE" in os.environ:
        os.setsid = set_session_late
    draws()  # so that every generator has a state that a fork would copy
    if "THREADS" in os.environ:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    nursery_process.main(sys.argv[1:], child)
"""


@pytest.fixture
def own_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The nursery, with a child that tells what it finds in place of the command."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)

    def command(module: str, *arguments: str) -> list[str]:
        return [sys.executable, str(file), *arguments]

    monkeypatch.setattr(nursery, "our_python", command)


async def what_children_say(words: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    async with Nursery(preloading=False) as one:
        children = [await one.fork(each) for each in words]
        async with asyncio.timeout(60):
            said = [await child.stdout.read() for child in children]
            assert [await child.wait() for child in children] == [0] * len(words)
        return [json.loads(text) for text in said]


@pytest.mark.usefixtures("own_program")
def test_two_forked_children_draw_different_randomness_from_every_source() -> None:
    """Life numbers and keys, of every generator that had a state before the fork."""
    first, second = asyncio.run(what_children_say([["peer"], ["peer"]]))
    equal = [name for name, drawn in first["draws"].items() if drawn == second["draws"][name]]
    assert not equal


@pytest.mark.usefixtures("own_program")
def test_a_nursery_that_does_not_answer_is_given_up_with_what_does_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fork_from_one_that_stands_still() -> None:
        async with Nursery(preloading=False) as one:
            os.kill(one.pid, signal.SIGSTOP)
            await one.fork(["peer"])

    monkeypatch.setattr(nursery, "ANSWER_WITHIN_S", 0.1)
    with refusal(LocalProtocolError, "0.1", "--no-preload"):
        asyncio.run(fork_from_one_that_stands_still())


@pytest.mark.usefixtures("own_program")
def test_a_child_has_its_own_words_and_no_thread_of_the_nursery() -> None:
    said = asyncio.run(what_children_say([["peer", "--name", "p1"], ["server"]]))
    assert [one["words"] for one in said] == [["veilsum", "peer", "--name", "p1"], ["veilsum", "server"]]
    assert [one["shown"] for one in said] == [one["words"] for one in said]
    assert [one["threads"] for one in said] == [1, 1]


@pytest.mark.usefixtures("own_program")
def test_a_child_holds_nothing_open_but_its_own_outputs_and_the_lifeline() -> None:
    first, *others = asyncio.run(what_children_say([["peer"], ["peer"], ["server"]]))
    assert first["open"][:3] == [0, 1, 2]
    assert len(first["open"]) == 5  # the lifeline, and the folder that is being listed
    assert [one["open"] for one in others] == [first["open"]] * 2


@pytest.mark.usefixtures("own_program")
def test_what_a_child_leaves_behind_ends_with_it_and_its_number_is_not_used_again() -> None:
    """After a child's end its number may be that of another process, which a late signal would hit."""

    async def run() -> Forked:
        async with Nursery(preloading=False) as one:
            child = await one.fork(["left"])
            async with asyncio.timeout(60):
                told = json.loads(await child.stdout.read())
                assert await child.wait() == 0
            wait_until(lambda: not is_alive(told["left"]))
            return child

    child = asyncio.run(run())
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as stranger:
        try:
            child.pid = stranger.pid
            child.signal_group(signal.SIGKILL)
            assert stranger.poll() is None
            assert is_alive(stranger.pid)
        finally:
            stranger.kill()


def is_alive(number: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    status = Path(f"/proc/{number}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.usefixtures("own_program")
def test_a_nursery_with_a_second_thread_forks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that such a thread holds would stay locked in the child for ever; the refusal names the way without."""
    monkeypatch.setenv("THREADS", "1")
    with pytest.raises(LocalProtocolError) as refusal:
        asyncio.run(what_children_say([["peer"]]))
    require_mentions(str(refusal.value), "threads", "--no-preload")


@pytest.mark.usefixtures("own_program")
def test_a_child_leaves_in_order_and_takes_nothing_apart_that_it_shares() -> None:
    """That would first copy all that was imported: more work than the whole run of a small federation."""

    async def run() -> tuple[bytes, int]:
        async with Nursery(preloading=False) as one, asyncio.timeout(60):
            child = await one.fork(["leave"])
            return await child.stdout.read(), await child.wait()

    assert asyncio.run(run()) == (b"in a buffer, at its end\n", 3)


def test_a_child_runs_the_command_and_ends_with_its_exit_code() -> None:
    async def run() -> tuple[bytes, bytes, int]:
        async with Nursery(preloading=False) as one:
            child: Forked = await one.fork(["plna"])
            async with asyncio.timeout(60):
                return await child.stdout.read(), await child.stderr.read(), await child.wait()

    stdout, stderr, code = asyncio.run(run())
    assert (stdout, code) == (b"", 2)
    require_mentions(stderr.decode(), "plna", "plan")


def test_a_nursery_that_is_slow_to_begin_reads_one_request_at_a_time() -> None:
    """Asked to fork before it has read what it is to import, it answers both."""

    async def run() -> int:
        async with Nursery() as slow:
            os.kill(slow.pid, signal.SIGSTOP)
            asking = asyncio.create_task(slow.fork(["--version"]))
            await asyncio.sleep(0.1)
            os.kill(slow.pid, signal.SIGCONT)
            child = await asking
            return await child.wait()

    assert asyncio.run(asyncio.wait_for(run(), 60)) == 0


@pytest.mark.usefixtures("own_program")
@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_reaches_a_child_that_was_just_forked_and_leads_no_group_yet(
    which: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATE", "1")

    async def run() -> int:
        async with Nursery(preloading=False) as one, asyncio.timeout(60):
            child = await one.fork(["peer"])
            child.signal_group(which)
            return await child.wait()

    assert asyncio.run(run()) == (130 if which == signal.SIGTERM else -signal.SIGKILL)


def test_a_title_shows_a_folder_whose_name_is_no_utf_8() -> None:
    room = ctypes.create_string_buffer(32)
    Title(ctypes.addressof(room), 32).write(["veilsum", os.fsdecode(b"fed\xff")])
    assert room.raw.rstrip(b"\0") == b"veilsum\0fed\xff"
