"""A map-style data set, as torch has them, becomes two arrays: anything with a length and items (input, target).

Every item is asked for once, in order. Inputs are tensors, arrays, numbers or images of PIL; images become uint8 pixels
with the channels first, as a `ToTensor` without its division would make them. torch and PIL are known by what their
objects have, and are not imported.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.reading.arrays import (
    AnyArray,
    NotConvertible,
    as_array,
    as_inputs,
    as_targets,
    dimensions_of,
)

_PIXELS = {"L": 1, "RGB": 3, "RGBA": 4}
"""Modes of images whose channels are bytes."""


class MapDataset(Protocol):
    """What is asked of a data set: its length, and each item once."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def read_dataset(dataset: MapDataset) -> tuple[AnyArray, AnyArray]:
    """All inputs and all targets."""
    name = type(dataset).__name__
    count = _length(dataset, name)
    inputs, targets = [], []
    for index in range(count):
        one, target = _pair(dataset[index], f"item {index} of {name}")
        inputs.append(one)
        targets.append(target)
        _require_alike(inputs, f"the input of item {index} of {name}")
        _require_alike(targets, f"the target of item {index} of {name}")
    return np.stack(inputs), np.stack(targets)


def _length(dataset: MapDataset, name: str) -> int:
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise TaskError(
            f"{name} has no length or no items by number, so it is no map-style data set: give list(dataset), if it "
            "fits into memory"
        )
    try:
        count = len(dataset)
    except TypeError as error:
        raise TaskError(f"{name} does not know its length ({error}): give list(dataset)") from error
    if count == 0:
        raise TaskError(f"{name} is empty: a party needs at least one sample")
    return count


def _pair(item: object, what: str) -> tuple[AnyArray, AnyArray]:
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        held = f"{len(item)} parts" if isinstance(item, (tuple, list)) else f"a {type(item).__name__}"
        raise TaskError(f"{what} is {held}, not (input, target): wrap the data set so that items are pairs")
    try:
        inputs = _image(item[0]) if hasattr(item[0], "getbands") else as_inputs(item[0])
    except NotConvertible as problem:
        raise TaskError(f"the input of {what}: values {problem}") from None
    try:
        return inputs, as_targets(item[1])
    except NotConvertible as problem:
        raise TaskError(f"the target of {what}: values {problem}") from None


def _image(image: Any) -> AnyArray:
    """The pixels of an image of PIL, channels first."""
    if image.mode not in _PIXELS:
        raise NotConvertible(
            f"of an image of mode {image.mode} are no pixels from 0 to 255: image.convert('RGB') or convert('L')"
        )
    pixels = as_array(image)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _require_alike(arrays: list[AnyArray], what: str) -> None:
    first, last = arrays[0], arrays[-1]
    if first.shape != last.shape:
        raise TaskError(
            f"{what} is {dimensions_of(last.shape)}, that of item 0 {dimensions_of(first.shape)}: give all items one "
            "shape, such as by resizing or padding in the data set's transform"
        )
    if first.dtype != last.dtype:
        raise TaskError(f"{what} is {last.dtype}, that of item 0 {first.dtype}: give all items one type")
