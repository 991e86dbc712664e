"""Image classification tasks differ in their files only; this is what they share."""

from __future__ import annotations

from functools import partial

import numpy as np

from veilsum.roles.learning.datasets.supervised import SupervisedTask
from veilsum.roles.learning.models import build_model
from veilsum.roles.learning.task import Array, Samples, TaskOptions


def image_task(
    train: Samples, test: Samples, classes: int, default_model: str, options: TaskOptions
) -> SupervisedTask:
    """Classification of images (channels, height, width), with cross entropy unless the user chose a loss."""
    network = partial(build_model, options.model or default_model, train.input_shape, classes)
    return SupervisedTask(train, test, network, options.loss or "ce")


def channels_first(images: Array) -> Array:
    """(N, H, W, C) to (N, C, H, W)."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
