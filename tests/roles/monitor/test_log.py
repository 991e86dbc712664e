"""The log: one line per fact, whatever the fact quotes."""

from __future__ import annotations

import errno
import io
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.events import PartyNamed
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.monitor.log_format import LOG_FORMATS, LogFormat


def said(log_format: str, text: str) -> str:
    stream = io.StringIO()
    log = RoleLog("alice", next(one for one in LOG_FORMATS if one == log_format), stream)
    log.say("refused", sender="mallory", text=text)
    return stream.getvalue()


@given(st.text())
@example("\x7f")
def test_whatever_others_sent_stays_on_one_printable_line(text: str) -> None:
    """No newline, escape sequence or other control character reaches the log, in either format."""
    for log_format in LOG_FORMATS:
        line = said(log_format, text)
        assert line.endswith("\n")
        assert line[:-1].isprintable()
    assert json.loads(said("json", text))["text"] == text


def test_a_forged_line_is_seen_for_what_it_is() -> None:
    line = said("text", "no\n12:00:00 server: run finished\x1b[2K\u2028")
    assert line.count("\n") == 1
    assert r"mallory, no\n12:00:00 server: run finished\x1b[2K\u2028" in line


def test_a_line_about_another_party_says_who_tells_it() -> None:
    stream = io.StringIO()
    RoleLog("alice", "json", stream).tell(PartyNamed(PartyId("mallory"), AbortReason.BAD_SIGNATURE, "forged"))
    line = json.loads(stream.getvalue())
    assert (line["party"], line["fact"], line["named"]) == ("alice", "party_named", "mallory")


def test_ordinary_text_is_left_as_it_is() -> None:
    assert "mallory, größer: C:\\path" in said("text", "größer: C:\\path")


class FullDisk(io.StringIO):
    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("log_format", LOG_FORMATS)
def test_a_disk_that_takes_no_line_ends_no_run(log_format: LogFormat) -> None:
    log = RoleLog("alice", log_format, FullDisk())
    for _ in range(3):
        log.say("warning", text="one more")
