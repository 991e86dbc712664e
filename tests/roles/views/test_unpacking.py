"""A view file unpacks to what its shapes and a stated bound allow, and not to what it states about itself."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.roles.views import file
from veilsum.roles.views.file import BadViewFile, load_view
from veilsum.roles.views.unpacking import TooMuch, UnpackingError, unpack_arrays

MIB = 1 << 20
TABLE = np.frombuffer(json.dumps({"facts": []}).encode(), dtype=np.uint8)


def npy(array: np.ndarray[Any, Any]) -> bytes:
    """An array in numpy's format."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def archive(
    members: dict[str, bytes], how: int = zipfile.ZIP_DEFLATED, stated: dict[str, int] | None = None
) -> bytes:
    """A zip archive whose directory states other sizes than the members have."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how) as written:
        for name, data in members.items():
            written.writestr(name, data)
        for member in written.filelist:
            member.file_size = (stated or {}).get(member.filename, member.file_size)
    return buffer.getvalue()


def forged(content: bytes, path: Path) -> Path:
    path.write_bytes(file._first_line(content) + content)
    return path


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("lie", ["none", "directory", "shape"])
def test_an_archive_of_a_few_kilobytes_occupies_no_megabytes(lie: str, tmp_path: Path) -> None:
    """64 MiB of zeros, stated in full or as a few bytes, or announced by a shape: refused while memory is small."""
    large = npy(np.zeros(64 * MIB, dtype=np.uint8))
    small = npy(np.zeros(10, dtype=np.uint8))
    data, stated = {
        "none": (large, len(large)),
        "directory": (large, len(small)),
        "shape": (small.replace(b"(10,), }" + b" " * 20, b"(99999999999999999999,), }  "), len(small)),
    }[lie]
    path = forged(
        archive({"table.npy": npy(TABLE), "a0.npy": data}, stated={"a0.npy": stated}), tmp_path / "v"
    )
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    with refusal(BadViewFile, path.name):
        load_view(path, most_bytes=16 * MIB)
    assert tracemalloc.get_traced_memory()[1] - before < 4 * MIB


def test_more_than_the_bound_is_refused_with_the_file_and_a_remedy(tmp_path: Path) -> None:
    path = forged(archive({"table.npy": npy(TABLE), "a0.npy": npy(np.zeros(2 * MIB))}), tmp_path / "big.view")
    with refusal(BadViewFile, "big.view", "rounds", "most_bytes") as caught:
        load_view(path, most_bytes=MIB)
    assert isinstance(caught.value.__cause__, TooMuch)
    with refusal(BadViewFile, "big.view", "rounds"):
        load_view(path, most_bytes=100)


@pytest.mark.parametrize(
    "content",
    [
        archive({"a0.npy": npy(np.zeros(3)) + b"more"}),
        archive({"a0.npy": npy(np.zeros(3))[:-1]}),
        archive({"a0.npy": npy(np.zeros(3))}, stated={"a0.npy": 10**6}),
        archive({"a0.npy": npy(np.zeros(3))}, how=zipfile.ZIP_LZMA),
        archive({"a0.npy": npy(np.zeros(3))}, how=zipfile.ZIP_BZIP2),
        archive({"a0.npy": npy(np.zeros(3, dtype="i4,f8"))}),
        archive({"a0.npy": npy(np.array([{}], dtype=object))}),
        archive({"a0.npy": npy(np.array(["text"]))}),
        archive({"a0.npy": npy(np.zeros(3)).replace(b"\x93NUMPY\x01", b"\x93NUMPY\x07")}),
        archive({"a0.npy": npy(np.zeros(3)), "a0": npy(np.zeros(3))}),
    ],
    ids=["behind", "short", "stated", "lzma", "bzip2", "records", "objects", "texts", "format", "twice"],
)
def test_arrays_that_are_not_what_they_state_are_refused(content: bytes) -> None:
    with pytest.raises(UnpackingError):
        unpack_arrays(content)


@pytest.mark.parametrize(
    "array", [np.zeros(0), np.arange(6).reshape(2, 3), np.asfortranarray(np.eye(3)), np.float32(2)]
)
def test_arrays_come_back_as_they_were_packed(array: Any) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, a=array)
    found = unpack_arrays(buffer.getvalue())["a"]
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.binary(max_size=100), at=st.integers(0, 10**6), change=st.binary(max_size=8))
def test_only_the_typed_error_leaves_the_reader_of_views(
    junk: bytes, at: int, change: bytes, tmp_path: Path
) -> None:
    """Any bytes, any archive with a part of it changed, and any JSON as table, each under a right hash."""
    good = archive({"table.npy": npy(TABLE), "a0.npy": npy(np.arange(9))})
    at %= len(good)
    changed = good[:at] + change + good[at + len(change) :]
    table = archive({"table.npy": npy(np.frombuffer(junk or b"[", dtype=np.uint8))})
    for content in (junk, changed, table):
        with pytest.raises(BadViewFile):
            load_view(forged(content, tmp_path / "v"))
    (tmp_path / "v").write_bytes(junk)
    with pytest.raises(BadViewFile):
        load_view(tmp_path / "v")


def test_a_table_that_nests_without_end_is_refused(tmp_path: Path) -> None:
    nested = np.frombuffer(b"[" * 100_000, dtype=np.uint8)
    with refusal(BadViewFile, "nested.view"):
        load_view(forged(archive({"table.npy": npy(nested)}), tmp_path / "nested.view"))
