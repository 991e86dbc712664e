"""While a role process runs, every line of its standard error is a fact, whoever writes it; then all is as before."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.monitor.log_format import LogFormat
from veilsum.roles.monitor.takeover import taken_over


def told_of(act: Callable[[], Any], log_format: LogFormat = "json") -> str:
    stream = io.StringIO()
    with taken_over(RoleLog("alice", log_format, stream)):
        act()
    return stream.getvalue()


def fail() -> None:
    raise OSError(9, "Bad file descriptor")


def forgotten_future() -> None:
    async def forget() -> None:
        asyncio.get_running_loop().create_future().set_exception(OSError(9, "Bad file descriptor"))
        gc.collect()

    asyncio.run(forget())


def forgotten_task() -> None:
    async def work() -> None:
        fail()

    async def forget() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        del task
        gc.collect()

    asyncio.run(forget())


def callback_that_fails() -> None:
    async def call() -> None:
        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(0)

    asyncio.run(call())


def thread_that_fails() -> None:
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()


def clean_up_that_fails() -> None:
    class Fragile:
        def __del__(self) -> None:
            fail()

    Fragile()
    gc.collect()


def logged_exception() -> None:
    try:
        fail()
    except OSError:
        logging.getLogger("a.library").exception("it broke\nin two lines")


@pytest.mark.parametrize(
    "act",
    [
        forgotten_future,
        forgotten_task,
        callback_that_fails,
        thread_that_fails,
        clean_up_that_fails,
        logged_exception,
    ],
)
def test_what_nobody_expected_is_one_typed_fact_without_a_traceback(
    act: Callable[[], None], capfd: pytest.CaptureFixture[str]
) -> None:
    (fact,) = map(json.loads, told_of(act).splitlines())
    assert (fact["party"], fact["fact"], fact["error"]) == ("alice", "unexpected", "OSError")
    assert "Bad file descriptor" in fact["detail"]
    assert "traceback" not in fact
    assert not capfd.readouterr().err


def test_its_traceback_is_told_to_whoever_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEILSUM_TRACEBACK", "1")
    (fact,) = map(json.loads, told_of(thread_that_fails).splitlines())
    assert "in fail" in fact["traceback"]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_warnings_and_lines_of_libraries_are_warnings_that_name_them(log_format: LogFormat) -> None:
    def act() -> None:
        warnings.warn("this will change", FutureWarning, stacklevel=1)
        logging.getLogger("a.library").error("no %s", "room")
        logging.getLogger("veilsum.transport").warning("ours")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        lines = told_of(act, log_format).splitlines()
    assert len(lines) == 3
    for line, words in zip(
        lines, ("FutureWarning: this will change", "a.library: no room", "ours"), strict=True
    ):
        assert words in line and "warning" in line


def test_a_wrong_call_of_a_logger_ends_nothing() -> None:
    said = told_of(lambda: logging.getLogger("a.library").error("%d", "no number"))
    assert "a.library" in json.loads(said)["text"]


def test_lines_that_user_code_prints_are_facts_in_json_whole_or_not() -> None:
    def act() -> None:
        sys.stderr.write("half a ")
        sys.stderr.write("line\n\nand an es\x1bcape")

    facts = [json.loads(line) for line in told_of(act).splitlines()]
    assert [(fact["fact"], fact["text"]) for fact in facts] == [
        ("printed", "half a line"),
        ("printed", r"and an es\x1bcape"),
    ]


def test_afterwards_everything_leads_where_it_led_before() -> None:
    def where() -> tuple[object, ...]:
        root = logging.getLogger()
        return (
            root.handlers,
            root.level,
            warnings.showwarning,
            threading.excepthook,
            sys.unraisablehook,
            sys.stderr,
        )

    before = where()
    with pytest.raises(OSError, match="Bad file"):
        told_of(fail)
    assert where() == before
