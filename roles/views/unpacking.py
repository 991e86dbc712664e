"""The arrays of a view file, unpacked within bounds.

A few kilobytes of a compressed archive unpack to gigabytes, and what an archive states about itself may be a lie. So
sizes are compared three times: what the directory states with the bound; the shape in front of each array with what the
directory states for it; and, while it is unpacked piece by piece, what really comes with both. Memory grows with what
was unpacked, and nothing but plain numbers is: no pickles, no records, no compression that cannot be stopped midway.

Rejected: numpy's own reader, which allocates what a header announces and knows no bound.

Implements specs/views.md, section 2.
"""

from __future__ import annotations

import io
import math
import zipfile
from typing import IO, Any, Final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

MOST_BYTES: Final = 4 << 30
"""What the arrays of one file may have together, unpacked."""
MOST_ARRAYS: Final = 1 << 20
_PIECE: Final = 1 << 20
_SUFFIX: Final = ".npy"
_STOPPABLE: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_NUMBERS: Final = "biuf"


class UnpackingError(ValueError):
    """The archive states or holds what it must not; the text says what."""


class TooMuch(UnpackingError):
    """More than the bound."""

    def __init__(self, size: int, most: int) -> None:
        super().__init__(f"it unpacks to {size} bytes or more, and {most} are the most that is read")


def unpack_arrays(content: bytes, most_bytes: int = MOST_BYTES) -> dict[str, NDArray[Any]]:
    """Every array of the archive by its name; `UnpackingError`, or what zipfile raises, if it is no such archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        stated = sum(member.file_size for member in members)
        if stated > most_bytes:
            raise TooMuch(stated, most_bytes)
        if len(members) > MOST_ARRAYS:
            raise UnpackingError(f"{len(members)} arrays, and {MOST_ARRAYS} are the most that is read")
        arrays: dict[str, NDArray[Any]] = {}
        for member in members:
            name = member.filename.removesuffix(_SUFFIX)
            if name in arrays:
                raise UnpackingError(f"two arrays called {name!r:.80}")
            arrays[name] = _unpack(archive, member)
        return arrays


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    name = f"array {member.filename!r:.80}"
    if member.compress_type not in _STOPPABLE:
        raise UnpackingError(f"{name} is compressed in another way than deflate")
    with archive.open(member) as stream:
        shape, column_major, dtype = _header(stream)
        if dtype.kind not in _NUMBERS or dtype.fields is not None or dtype.subdtype is not None:
            raise UnpackingError(f"{name} holds {dtype}, and not plain numbers")
        size = math.prod(shape) * dtype.itemsize
        if size != member.file_size - stream.tell():
            raise UnpackingError(f"{name} has {size} bytes by its shape, and not what the directory states")
        data = _exactly(stream, size, name)
    return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if column_major else "C")


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of the numbers; a header is short, and holds literals only."""
    version = npy.read_magic(stream)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise UnpackingError(f"an array of format {version}")
    shape, column_major, dtype = readers[version](stream)
    return shape, column_major, dtype


def _exactly(stream: IO[bytes], size: int, name: str) -> bytearray:
    """So many bytes and no more, in pieces; the checksum is compared where the stream ends."""
    data = bytearray()
    while piece := stream.read(min(_PIECE, size + 1 - len(data))):
        data += piece
        if len(data) > size:
            raise UnpackingError(f"{name} goes on behind its end")
    if len(data) < size:
        raise UnpackingError(f"{name} ends after {len(data)} of {size} bytes")
    return data
