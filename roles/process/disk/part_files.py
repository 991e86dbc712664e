"""The large parts of a state as files: each twice, under the name of its content.

A checkpoint names a part by one file and the SHA-256 of what is in it. Beside that file stands a copy of its own blocks
on the disk. Checkpoints of one round name one model, so without the copy one flipped bit would damage all of them at
once. A file that is not what it should be is written anew from the other one, and nothing is lost.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
from pathlib import Path
from typing import Any, TypeAlias

from veilsum.roles.federation.private_files import replace_private_file

PART_NAME = re.compile(r"(model|memory|step|next-model|next-step)-\d{12}-[0-9a-f]{16}\.(f32|bin)")
COPY = ".copy"
_LOST = {errno.ENOENT, errno.EIO, errno.EISDIR}

Part: TypeAlias = dict[str, Any]
"""Where a large part is: its file, its SHA-256 and its length in bytes."""


class DamagedFile(Exception):
    """A file is not what was written."""


def write_part(folder: Path, kind: str, rounds: int, content: bytes) -> Part:
    """Make a part durable in two files; returns how a checkpoint names it."""
    digest = hashlib.sha256(content).hexdigest()
    ending = "f32" if kind.endswith("model") else "bin"
    name = f"{kind}-{rounds:012}-{digest[:16]}.{ending}"
    for file in (name, name + COPY):
        replace_private_file(folder / file, content)
    return {"file": name, "sha256": digest, "length": len(content)}


def read_part(folder: Path, part: Part, warnings: list[str]) -> bytes:
    """The content of a part, from whichever of its files is whole; the other one is written anew."""
    name: str = part["file"]
    if not PART_NAME.fullmatch(name):
        raise DamagedFile("it names no file of ours")
    found, harmed = None, dict[str, str]()
    for file in (name, name + COPY):
        try:
            found = _whole(folder / file, part)
        except DamagedFile as damage:
            harmed[file] = str(damage)
    if found is None:
        raise DamagedFile("; ".join(harmed.values()))
    for file, why in harmed.items():
        warnings.append(f"{why}: nothing is lost, it was written anew from the other one of its two files")
        with contextlib.suppress(OSError):
            replace_private_file(folder / file, found)
    return found


def read_no_more(path: Path, most: int) -> bytes:
    """The content of a regular file, or of a longer one its beginning: folders of strangers are read, too.

    A file that is gone or whose blocks cannot be read is damaged; whatever else keeps us from reading it is an OSError.
    """
    try:
        # Without O_NONBLOCK, opening a pipe that has no writer would wait for one.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise DamagedFile(f"{path.name} is not a regular file")
            return file.read(min(most, status.st_size) + 1)
    except OSError as error:
        if error.errno in _LOST:
            raise DamagedFile(f"{path.name}: {error.strerror}") from None
        raise


def forget_parts(folder: Path, wanted: set[str]) -> None:
    """Remove the files of all parts but these."""
    for path in folder.iterdir():
        name = path.name.removesuffix(COPY)
        if PART_NAME.fullmatch(name) and name not in wanted:
            path.unlink(missing_ok=True)


def _whole(path: Path, part: Part) -> bytes:
    content = read_no_more(path, part["length"])
    if len(content) != part["length"] or hashlib.sha256(content).hexdigest() != part["sha256"]:
        raise DamagedFile(f"{path.name} is not the file it should be")
    return content
