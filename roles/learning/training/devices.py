"""Which device a party trains on.

Several parties on one machine take its GPUs in turn: party k gets GPU k mod (number of GPUs). The choice is
a pure function of what is asked and what is there; looking what is there is a separate, small function.

Implements specs/learning.md, section 3.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from veilsum.protocol.errors import ParameterError

if TYPE_CHECKING:
    import torch

DEVICE_FORMS = "auto, cpu, cuda, cuda:INDEX, mps"
_INDEXED = re.compile(r"cuda:(\d{1,3})")


def resolve_device(requested: str, party_index: int, device_count: int, mps: bool = False) -> str:
    """The device for a party, given the number of CUDA devices and whether Apple's `mps` is there."""
    if requested == "cpu":
        return "cpu"
    if requested == "auto":
        return _in_turn(party_index, device_count) if device_count else ("mps" if mps else "cpu")
    if requested == "mps":
        if not mps:
            raise ParameterError(["device mps is not available here: use auto or cpu"])
        return "mps"
    if requested == "cuda":
        if not device_count:
            raise ParameterError(["device cuda: no CUDA device is available here: use auto or cpu"])
        return _in_turn(party_index, device_count)
    if match := _INDEXED.fullmatch(requested):
        if int(match[1]) >= device_count:
            raise ParameterError(
                [f"device {requested}: this machine has {device_count} CUDA devices: use auto or cpu"]
            )
        return f"cuda:{int(match[1])}"
    raise ParameterError([f"device {requested!r} is not one of: {DEVICE_FORMS}"])


def available_device(requested: str, party_index: int) -> torch.device:
    """The same, for the machine this runs on."""
    import torch

    # cuBLAS is repeatable only with a fixed workspace, which it reads when CUDA starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    name = resolve_device(
        requested, party_index, torch.cuda.device_count(), torch.backends.mps.is_available()
    )
    return torch.device(name)


def _in_turn(party_index: int, device_count: int) -> str:
    return f"cuda:{party_index % device_count}"
