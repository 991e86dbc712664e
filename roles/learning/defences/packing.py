"""Private state as bytes: msgpack, read back with a typed refusal."""

from __future__ import annotations

from typing import Any, cast

import msgpack  # type: ignore[import-untyped]  # it ships no types

from veilsum.protocol.errors import LocalProtocolError


def pack(value: Any) -> bytes:
    return cast(bytes, msgpack.packb(value, use_bin_type=True))


def unpack(data: bytes, what: str) -> Any:
    """The value, or a refusal that names what was expected."""
    try:
        return msgpack.unpackb(data)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise LocalProtocolError(f"{what} cannot be read: restore the party's own file") from error
