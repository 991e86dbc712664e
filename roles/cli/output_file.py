"""Where an output that a person named goes: whole into a regular file, and through everything else.

A regular file appears whole or not at all: it is written under another name beside it and renamed. A link stays a link;
the file that it leads to is replaced. A device, a pipe and an open descriptor (`/dev/null`, a FIFO, `/dev/stdout`) are
written to, because a rename would put a regular file in their place.

What is for its owner alone goes through such a passage only if nobody else can read there: a pipe that another user
made in a shared folder, or left open to others, would hand it on. What is opened is asked, so that it cannot be swapped
between check and write; it is asked before the work, too. An open descriptor that is a regular file was chosen by who
started us, with its mode.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from pathlib import Path

from veilsum.roles.federation.private_files import PrivateFileError, replace_file

READER_WITHIN_S = 10.0
"""How long a pipe may have no reader before we give up."""
_PRIVATE = 0o600
_MOST_LINKS = 40
_ASK_AGAIN_S = 0.05
_OTHERS = 0o077
_KEEPS_NOTHING = (os.makedev(1, 3), os.makedev(1, 7))
"""The devices /dev/null and /dev/full: nobody reads there what was written."""


def write_output(target: Path, content: str | bytes, *, private: bool = False) -> None:
    """Leave a text, or bytes, where they were asked for; a private file is for its owner alone."""
    if isinstance(content, str):
        content = content.encode("utf-8")
    if _is_file_to_replace(target):
        file = Path(os.path.realpath(target))
        replace_file(file, content, _PRIVATE if private else _mode_for(file))
        return
    if private:
        _require_own_passage(target, _passage_status(target))
    sys.stdout.flush()
    try:
        with os.fdopen(_open_passage(target), "wb") as passage:
            if private:
                _require_own_passage(target, os.fstat(passage.fileno()))
            passage.write(content)
    except OSError as error:
        # What is written through may be full, or lose its reader: the write knows no name.
        raise OSError(error.errno, error.strerror, str(target)) from error


def is_standard_output(target: Path) -> bool:
    """Whether an output goes where this process tells people what it did."""
    try:
        return os.path.samestat(target.stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):
        return False


def require_writable(target: Path, *, private: bool = False) -> None:
    """Raise before the work the error that writing would raise after it, as far as it can be known."""
    if not _is_file_to_replace(target):
        if private:
            _require_own_passage(target, _passage_status(target))
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
        return
    file = Path(os.path.realpath(target))
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.touch(exist_ok=False)
    draft.unlink()


def _is_file_to_replace(target: Path) -> bool:
    """Whether it is a regular file, or will be one: a name that is free, or a link to one."""
    if _own_descriptor(target) is not None:
        return False
    try:
        return stat.S_ISREG(target.stat().st_mode)
    except FileNotFoundError:
        return True


def _own_descriptor(path: Path) -> int | None:
    """The number of the open descriptor of this process that a path such as /dev/stdout leads to."""
    for _ in range(_MOST_LINKS):
        folder = os.path.realpath(path.parent)
        if folder in (f"/proc/{os.getpid()}/fd", "/dev/fd") and path.name.isdecimal():
            return int(path.name)
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def _open_passage(target: Path) -> int:
    descriptor = _own_descriptor(target)
    if descriptor is not None:
        return os.dup(descriptor)
    if stat.S_ISSOCK(target.stat().st_mode):
        raise OSError(errno.ENXIO, "is a socket: name a file, a pipe or a device", str(target))
    give_up = time.monotonic() + READER_WITHIN_S
    while True:
        try:
            # Without O_NONBLOCK, opening a pipe that nobody reads would wait for ever.
            descriptor = os.open(target, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > give_up:
                raise _nobody_reads(target) if error.errno == errno.ENXIO else error from None
            time.sleep(_ASK_AGAIN_S)
            continue
        os.set_blocking(descriptor, True)
        return descriptor


def _passage_status(target: Path) -> os.stat_result:
    descriptor = _own_descriptor(target)
    return target.stat() if descriptor is None else os.fstat(descriptor)


def _require_own_passage(target: Path, found: os.stat_result) -> None:
    """Refuse for private content a pipe or a device where another user reads, or could."""
    if stat.S_ISREG(found.st_mode) or (stat.S_ISCHR(found.st_mode) and found.st_rdev in _KEEPS_NOTHING):
        return
    if stat.S_ISSOCK(found.st_mode):  # whoever started us is at its other end; one with a name is not opened
        return
    kind = "pipe" if stat.S_ISFIFO(found.st_mode) else "device"
    remedy = f"name a file, or a {kind} of your own with mode 600"
    if found.st_uid != os.geteuid():
        raise PrivateFileError(
            target, f"is a {kind} of another user, and this is for its owner alone", remedy
        )
    if found.st_mode & _OTHERS:
        opened = f"is a {kind} that other users can reach (mode {stat.S_IMODE(found.st_mode):o})"
        raise PrivateFileError(target, f"{opened}, and this is for its owner alone", remedy)


def _nobody_reads(target: Path) -> OSError:
    return OSError(errno.ENXIO, f"nobody read this pipe for {READER_WITHIN_S:.0f} s", str(target))


def _mode_for(file: Path) -> int:
    """The mode that the file has, or that a new one gets from this process."""
    try:
        return stat.S_IMODE(file.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask
