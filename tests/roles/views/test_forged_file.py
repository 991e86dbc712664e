"""A view file that somebody made up, with a right hash over wrong content, is refused by its type and runs no code."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.refusals import refusal
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import PartyId
from veilsum.roles.views import file
from veilsum.roles.views.file import BadViewFile, load_view
from veilsum.roles.views.recording import earlier_view
from veilsum.roles.views.view import PublicFacts


def forged(table: Any, path: Path) -> Path:
    """A file whose first line fits its content, whatever that is."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, table=np.frombuffer(json.dumps(table).encode(), dtype=np.uint8))
    path.write_bytes(file._first_line(buffer.getvalue()) + buffer.getvalue())
    return path


@pytest.mark.parametrize(
    "table",
    [
        [],
        {},
        "text",
        {"facts": []},
        {"facts": {}},
        {"facts": [{}]},
        {"facts": [{"scheme": ["plain"]}]},
        {"facts": [{"scheme": {"plain": 1}}]},
        {"facts": [{"scheme": None}]},
        {"facts": [{"scheme": "plain"}]},
    ],
)
def test_content_of_another_form_is_refused(table: Any, tmp_path: Path) -> None:
    with pytest.raises(BadViewFile):
        load_view(forged(table, tmp_path / "made-up.view"))


def test_a_compressed_stream_that_is_broken_is_refused(tmp_path: Path) -> None:
    path = forged({"facts": []}, tmp_path / "made-up.view")
    content = path.read_bytes().partition(b"\n")[2]
    start = content.index(b"table.npy") + len(b"table.npy") + 24
    broken = content[:start] + bytes(8) + content[start + 8 :]
    path.write_bytes(file._first_line(broken) + broken)
    with pytest.raises(BadViewFile):
        load_view(path)


def test_a_scheme_that_a_file_names_is_shown_without_its_control_characters(tmp_path: Path) -> None:
    with pytest.raises(BadViewFile) as caught:
        load_view(forged({"facts": [{"scheme": "os:\x1b[2Jplain"}]}, tmp_path / "made-up.view"))
    assert "\x1b" not in str(caught.value)
    assert "--scheme" in str(caught.value)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_refused_at_once_and_never_waited_for(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    """A pipe without a writer would keep whoever opens it, for as long as whoever made it likes."""
    path = tmp_path / "server.view"
    make(path)
    with refusal(BadViewFile, path):
        load_view(path)
    facts = PublicFacts({"scheme": "plain"}, 5, (), 0)
    with refusal(ParameterError, "--record-view", path):
        earlier_view(path, PartyId("p1"), facts, resume=False)
