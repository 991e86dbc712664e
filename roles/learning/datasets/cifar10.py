"""`cifar10`: 32 x 32 colour images from the official binary version, or from npz files.

The official Python version consists of pickles, which run code when they are read: it is refused by name.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from veilsum.roles.learning.datasets import files
from veilsum.roles.learning.datasets.common import refuse_argument
from veilsum.roles.learning.datasets.images import channels_first, image_task
from veilsum.roles.learning.datasets.supervised import SupervisedTask
from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.task import Samples, TaskOptions

CLASSES = 10
DEFAULT_MODEL = "lenet5"
ACCEPTED = (
    "either the official binary version (data_batch_1.bin to data_batch_5.bin and test_batch.bin) "
    "or cifar10_train*.npz and cifar10_test*.npz (x: N x 32 x 32 x 3 uint8, y)"
)
_IMAGE = (3, 32, 32)
_RECORD = 1 + 3 * 32 * 32
_TRAIN_BATCHES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_SUBFOLDER = "cifar-10-batches-bin"


def cifar10(options: TaskOptions) -> SupervisedTask:
    refuse_argument("cifar10", options)
    folder = files.require_folder("cifar10", options, ACCEPTED)
    train_npz, test_npz = (files.find_file(folder, [f"cifar10_{part}*.npz"]) for part in ("train", "test"))
    if train_npz and test_npz:
        train, test = _from_npz(train_npz), _from_npz(test_npz)
    else:
        train, test = _from_binary(folder, _TRAIN_BATCHES), _from_binary(folder, ("test_batch.bin",))
    return image_task(train, test, CLASSES, DEFAULT_MODEL, options)


def _from_npz(path: Path) -> Samples:
    images, labels = files.read_npz(path, ["x", "y"])
    pixels = channels_first(files.require_images(path, images, (32, 32, 3)))
    return Samples(pixels, files.require_labels(path, labels, len(pixels), CLASSES))


def _from_binary(folder: Path, names: tuple[str, ...]) -> Samples:
    parts = [read_records(_require_binary(folder, name)) for name in names]
    inputs = np.concatenate([part.inputs for part in parts])
    return Samples(inputs, np.concatenate([part.targets for part in parts]))


def read_records(path: Path) -> Samples:
    """Records of one label byte and 3,072 pixels: all red, then all green, then all blue."""
    with files.open_maybe_gzip(path) as handle:
        body = np.frombuffer(handle.read(), dtype=np.uint8)
    if not body.size or body.size % _RECORD:
        raise TaskError(f"{path} is not made of records of {_RECORD} bytes: is it the binary version?")
    records = body.reshape(-1, _RECORD)
    pixels = records[:, 1:].reshape(-1, *_IMAGE)
    return Samples(pixels, files.require_labels(path, records[:, 0], len(records), CLASSES))


def _require_binary(folder: Path, name: str) -> Path:
    path = files.find_file(folder, [name, f"{_SUBFOLDER}/{name}"])
    if path is not None:
        return path
    if pickled := files.find_file(folder, ["data_batch_*[0-9]", "cifar-10-batches-py/data_batch_*[0-9]"]):
        raise TaskError(
            f"task cifar10: {pickled} is of the Python version, which is pickled and therefore never read; "
            f"put there {ACCEPTED}"
        )
    raise files.missing("cifar10", folder, [name, "cifar10_train*.npz with cifar10_test*.npz"], ACCEPTED)
