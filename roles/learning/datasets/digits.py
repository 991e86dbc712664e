"""`digits`: 1,797 real handwritten digits of 8 x 8 pixels, shipped with the package (see data/README.md)."""

from __future__ import annotations

from importlib import resources

import numpy as np

from veilsum.roles.learning.datasets.common import held_out, refuse_argument
from veilsum.roles.learning.datasets.images import image_task
from veilsum.roles.learning.datasets.supervised import SupervisedTask
from veilsum.roles.learning.task import Samples, TaskOptions

CLASSES = 10
DEFAULT_MODEL = "mlp2:64"
_PIXEL_MAX = 16


def digits(options: TaskOptions) -> SupervisedTask:
    """Pixels from 0 to 1; a fifth of the images are test images."""
    refuse_argument("digits", options)
    source = resources.files("veilsum.roles.learning") / "data" / "digits.npz"
    with source.open("rb") as handle, np.load(handle, allow_pickle=False) as archive:
        images = archive["x"][:, None].astype(np.float32) / _PIXEL_MAX
        labels = archive["y"].astype(np.int64)
    for_test = held_out(len(images))
    train = Samples(images[~for_test], labels[~for_test])
    test = Samples(images[for_test], labels[for_test])
    return image_task(train, test, CLASSES, DEFAULT_MODEL, options)
