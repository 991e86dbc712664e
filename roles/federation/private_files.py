"""Files that only their owner may read, and that are never replaced by accident.

A private file appears complete or not at all: it is written under a temporary name with mode 0600, flushed
to disk, linked to its final name, and the folder is flushed. A link, unlike a rename, fails when the name
is taken, so two processes that race cannot overwrite each other's key. Reading refuses modes that let
others in; the check looks at the opened file, so it cannot be swapped between check and read.
"""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
from pathlib import Path

from veilsum.protocol.errors import ParameterError

_PRIVATE = 0o600
_OTHERS = 0o077
_LARGEST_FILE = 65_536


class PrivateFileError(ParameterError):
    """A private file cannot be used; the text names the file and the remedy."""

    def __init__(self, path: Path, problem: str, remedy: str) -> None:
        self.path = path
        self.problem = problem
        self.remedy = remedy
        super().__init__([f"{path} {problem}: {remedy}"])


def create_private_file(path: Path, content: bytes) -> None:
    """Write a new file with mode 0600 in a folder with mode 0700; refuse if the name is taken."""
    make_private_folder(path.parent)
    temporary = _write_temporary(path, content, _PRIVATE)
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise already_exists(path) from None
    finally:
        temporary.unlink()
    flush_folder(path.parent)


def replace_private_file(path: Path, content: bytes, *, in_closed_folder: bool = True) -> None:
    """Write a file with mode 0600 in place of any earlier one, for content that may be made again.

    The folder is closed too, unless it is one that the user named and may share.
    """
    if in_closed_folder:
        make_private_folder(path.parent)
    replace_file(path, content, _PRIVATE)


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """Write a file in place of any earlier one: it appears whole, with this mode, or not at all."""
    temporary = _write_temporary(path, content, mode)
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink()
        raise
    flush_folder(path.parent)


def read_private_file(path: Path, largest: int = _LARGEST_FILE) -> bytes:
    """The content of a file that nobody but its owner can reach."""
    _require_closed_folder(path.parent)
    try:
        # Without O_NONBLOCK, opening a pipe that has no writer would wait for one.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise _missing(path) from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise PrivateFileError(path, "is not a regular file", "correct the path")
        _require_closed_mode(path, mode, "600")
        content = os.read(descriptor, largest + 1)
    finally:
        os.close(descriptor)
    if len(content) > largest:
        raise PrivateFileError(path, f"has more than {largest} bytes", "correct the path")
    return content


def make_private_folder(folder: Path) -> None:
    """Create a folder with mode 0700, or accept one that exists with no access for others."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_closed_folder(folder)


def already_exists(path: Path) -> PrivateFileError:
    return PrivateFileError(
        path,
        "already exists and is not overwritten",
        "choose another folder, or move the file away if it is obsolete",
    )


def _write_temporary(path: Path, content: bytes, mode: int) -> Path:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        temporary.unlink()
        # A full disk is told of by the write, which knows no name.
        raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:
        temporary.unlink()
        raise
    return temporary


def flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _require_closed_folder(folder: Path) -> None:
    try:
        mode = folder.stat().st_mode
    except FileNotFoundError:
        raise _missing(folder) from None
    _require_closed_mode(folder, mode, "700")


def _missing(path: Path) -> PrivateFileError:
    return PrivateFileError(path, "does not exist", "create the identity first, or correct the path")


def _require_closed_mode(path: Path, mode: int, wanted: str) -> None:
    if mode & _OTHERS:
        found = f"{stat.S_IMODE(mode):o}"
        raise PrivateFileError(
            path, f"can be reached by other users (mode {found})", f"chmod {wanted} {shlex.quote(str(path))}"
        )
