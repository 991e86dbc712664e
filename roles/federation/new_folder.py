"""A folder that is made whole or not at all: what fails on the way leaves nothing that would stand in the way again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veilsum.protocol.errors import ParameterError


@contextmanager
def whole_folder(folder: Path) -> Iterator[None]:
    """Remove what was put into a folder that was empty, or not there, if putting it there fails or is interrupted.

    A folder that holds something already is left alone.
    """
    was_there = folder.exists()
    ours = not was_there or (folder.is_dir() and not any(folder.iterdir()))
    try:
        yield
    except BaseException:
        if ours and folder.is_dir():
            for child in folder.iterdir():
                shutil.rmtree(child) if child.is_dir() and not child.is_symlink() else child.unlink()
            if not was_there:
                folder.rmdir()
        raise


def make_folder(folder: Path) -> None:
    """Make a folder that a user named, or take the one that is there; one that cannot be made is a wrong request."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ParameterError([f"{folder} cannot be made ({error.strerror}): name another folder"]) from None
