"""The small file of a checkpoint: fields as JSON, with a checksum that tells damage apart from content.

What cannot be read for another reason than damage, such as its owner, is no damaged file: it raises `OSError`, and
nothing is passed over for it.

Implements specs/guide.md, section 6.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.roles.process.disk.part_files import DamagedFile, read_no_more

FORMAT = "veilsum checkpoint"
FORMAT_VERSION = 5
LONGEST_FILE = 64 * 1024 * 1024


class OtherVersion(DamagedFile):
    """A file is whole as far as one can tell, and of another version of the format."""


def encode_fields(fields: Mapping[str, Any]) -> bytes:
    """The bytes of a checkpoint's file."""
    return json.dumps({**fields, "checksum": _checksum(fields)}, indent=1, sort_keys=True).encode() + b"\n"


def _checksum(fields: Mapping[str, Any]) -> str:
    text = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(length_prefixed(domain_tag("checkpoint"), text)).hexdigest()


def read_fields(path: Path) -> dict[str, Any]:
    """What a checkpoint says; a damaged one, or one of another format, is a `DamagedFile`."""
    try:
        fields = json.loads(read_no_more(path, LONGEST_FILE))
    except (ValueError, RecursionError) as error:
        raise DamagedFile(type(error).__name__) from None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise DamagedFile("it is no checkpoint")
    if fields.get("format_version") != FORMAT_VERSION:
        raise OtherVersion(str(fields.get("format_version"))[:20])
    if fields.pop("checksum", None) != _checksum(fields):
        raise DamagedFile("its checksum does not match")
    return fields
