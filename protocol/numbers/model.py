"""Models and updates as machines see them: one flat vector of float32, whatever made it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Model: TypeAlias = NDArray[np.float32]
MODEL_WORD_BYTES: Final = 4


@dataclass(frozen=True)
class LocalResult:
    """What local training gives the protocol: one vector and how many samples stand behind it."""

    payload: Model
    samples: int
    loss: float = 0.0
