"""`mnist`: 28 x 28 digits from the official idx files, packed or not, or from mnist.npz."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from veilsum.roles.learning.datasets import files
from veilsum.roles.learning.datasets.common import refuse_argument
from veilsum.roles.learning.datasets.images import image_task
from veilsum.roles.learning.datasets.supervised import SupervisedTask
from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.task import Array, Samples, TaskOptions

CLASSES = 10
DEFAULT_MODEL = "lenet5"
ACCEPTED = (
    "either mnist.npz (x_train, y_train, x_test, y_test) or the four official files train-images-idx3-ubyte, "
    "train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, with or without .gz"
)
_SIDE = 28
_UINT8 = 8


def mnist(options: TaskOptions) -> SupervisedTask:
    refuse_argument("mnist", options)
    folder = files.require_folder("mnist", options, ACCEPTED)
    if path := files.find_file(folder, ["mnist.npz"]):
        x_train, y_train, x_test, y_test = files.read_npz(path, ["x_train", "y_train", "x_test", "y_test"])
        train, test = _samples(path, x_train, y_train), _samples(path, x_test, y_test)
    else:
        train, test = _from_idx(folder, "train"), _from_idx(folder, "t10k")
    return image_task(train, test, CLASSES, DEFAULT_MODEL, options)


def _from_idx(folder: Path, part: str) -> Samples:
    images = _require_idx(folder, f"{part}-images", "idx3-ubyte")
    labels = _require_idx(folder, f"{part}-labels", "idx1-ubyte")
    return _samples(images, read_idx(images, dimensions=3), read_idx(labels, dimensions=1))


def _require_idx(folder: Path, stem: str, ending: str) -> Path:
    names = [f"{stem}-{ending}", f"{stem}-{ending}.gz", f"{stem}.{ending}", f"{stem}.{ending}.gz"]
    path = files.find_file(folder, names)
    if path is None:
        raise files.missing("mnist", folder, ["mnist.npz", *names[:2]], ACCEPTED)
    return path


def read_idx(path: Path, dimensions: int) -> Array:
    """An idx file of bytes: two zeros, type, number of dimensions, their sizes, then exactly the data."""
    with files.open_maybe_gzip(path) as handle:
        header = handle.read(4 + 4 * dimensions)
        if len(header) < 4 + 4 * dimensions or header[:4] != bytes([0, 0, _UINT8, dimensions]):
            raise TaskError(f"{path} is not an idx file of bytes with {dimensions} dimensions")
        shape = tuple(int(size) for size in np.frombuffer(header[4:], dtype=">u4"))
        body = handle.read(math.prod(shape) + 1)
    if len(body) != math.prod(shape):
        raise TaskError(f"{path} should hold {math.prod(shape)} bytes after its header, and no more")
    return np.frombuffer(body, dtype=np.uint8).reshape(shape)


def _samples(path: Path, images: Array, labels: Array) -> Samples:
    pixels = files.require_images(path, images, (_SIDE, _SIDE))
    return Samples(pixels[:, None], files.require_labels(path, labels, len(pixels), CLASSES))
