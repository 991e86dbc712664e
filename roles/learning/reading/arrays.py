"""Arrays of the types that samples have, made of what is like an array: numpy, tensors of torch, lists of numbers.

Inputs become float32 (or stay uint8, which are pixels), whole numbers as targets int64, others float32. A conversion is
exact or it is refused: what rounding does to the data is for their owner to decide, not for us.

Tensors are known by their methods, so that nothing here imports torch.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

AnyArray: TypeAlias = npt.NDArray[Any]

_WHOLE = "biu"


class NotConvertible(Exception):
    """A value is no array of numbers, or none that samples can hold; the text says what to do."""


def as_array(value: object) -> AnyArray:
    """The numpy array of anything like one, a tensor on any device included."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        value = _on_cpu(value)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise NotConvertible(f"cannot be made an array ({error})") from None
    if array.dtype.kind not in "biuf":
        raise NotConvertible(f"must be numbers, not a {type(value).__name__} of {array.dtype}")
    return array


def _on_cpu(tensor: Any) -> object:
    """A tensor where numpy can read it, of a type that numpy has."""
    tensor = tensor.detach().cpu()
    return tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor


def as_inputs(value: object) -> AnyArray:
    """float32, or uint8 as it is."""
    array = as_array(value)
    return array if array.dtype == np.uint8 else _exactly(array, np.dtype(np.float32))


def as_targets(value: object) -> AnyArray:
    """int64 for whole numbers, which are labels, float32 for others."""
    array = as_array(value)
    return _exactly(array, np.dtype(np.int64 if array.dtype.kind in _WHOLE else np.float32))


def _exactly(array: AnyArray, wanted: np.dtype[Any]) -> AnyArray:
    if array.dtype == wanted:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        made = array.astype(wanted)
        again = made.astype(array.dtype)
    changed = (again != array) & ~_undefined(array) | ((made < 0) != (array < 0))
    if changed.any():
        first = array[changed].ravel()[0]
        raise NotConvertible(
            f"are {array.dtype}, and {wanted} does not hold {first!r} exactly: convert them yourself, with "
            f".astype({str(wanted)!r}) or .to(torch.{wanted}), if rounding is right"
        )
    return made


def _undefined(array: AnyArray) -> AnyArray:
    return np.isnan(array) if array.dtype.kind == "f" else np.zeros(array.shape, dtype=np.bool_)


def dimensions_of(shape: tuple[int, ...]) -> str:
    """A shape for people: `3 x 32 x 32`, or `one number`."""
    return " x ".join(map(str, shape)) or "one number"
