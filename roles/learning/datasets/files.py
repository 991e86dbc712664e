"""Finding and reading data files, with errors that say what was looked for and where.

Nothing is unpickled: a pickle runs code of whoever wrote it.
"""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt

from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.task import Array, TaskOptions


def require_folder(task: str, options: TaskOptions, accepted: str) -> Path:
    """The data folder, or an error that says what to put there."""
    if options.data is None:
        raise TaskError(f"task {task} needs a data folder (--data FOLDER) with {accepted}")
    if not options.data.is_dir():
        raise TaskError(
            f"task {task}: the data folder {options.data} is not there; it should hold {accepted}"
        )
    return options.data


def find_file(folder: Path, names: Sequence[str]) -> Path | None:
    """The first of the names that is there; a name may be a pattern."""
    for name in names:
        for path in sorted(folder.glob(name)):
            if path.is_file():
                return path
    return None


def missing(task: str, folder: Path, names: Sequence[str], accepted: str) -> TaskError:
    return TaskError(
        f"task {task}: none of {', '.join(names)} is in {folder}; put there {accepted}. Nothing is downloaded"
    )


@contextmanager
def open_maybe_gzip(path: Path) -> Iterator[BinaryIO]:
    """A file for reading, unpacked if its name ends in .gz; a damaged file is named in the error."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as handle:
            yield cast(BinaryIO, handle)
    except (OSError, EOFError, zlib.error) as error:
        raise TaskError(f"{path} cannot be read: {error}") from error


def read_npz(path: Path, names: Sequence[str]) -> list[Array]:
    """Named arrays of an npz file, without pickle."""
    try:
        if not zipfile.is_zipfile(path):
            raise TaskError(f"{path} is not a readable npz file: it is no zip archive")
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as archive:
            absent = [name for name in names if name not in archive.files]
            if absent:
                raise TaskError(f"{path} has no array {', '.join(absent)}; it has {', '.join(archive.files)}")
            return [archive[name] for name in names]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise TaskError(f"{path} is not a readable npz file: {error}") from error


def require_images(path: Path, images: Array, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Images as uint8 of one shape."""
    if images.dtype != np.uint8 or images.ndim != len(shape) + 1 or images.shape[1:] != shape:
        wanted = " x ".join(map(str, ("N", *shape)))
        raise TaskError(f"{path}: images must be uint8, {wanted}, not {images.dtype} of shape {images.shape}")
    return images


def require_labels(path: Path, labels: Array, count: int, classes: int) -> npt.NDArray[np.int64]:
    """One label below `classes` for each of `count` images."""
    if labels.dtype.kind not in "ui" or labels.shape != (count,):
        raise TaskError(f"{path}: need {count} integer labels, not {labels.dtype} of shape {labels.shape}")
    if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise TaskError(f"{path}: labels must be from 0 to {classes - 1}")
    return labels.astype(np.int64)
