"""What a message shows of an update to whoever opens it: asked of the scheme, which knows its messages.

Implements specs/schemes.md, section 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.messages import Message, Tensor

_SEALED = "|u1"


@dataclass(frozen=True, eq=False)
class Carried:
    """A vector in a message: the update of its sender, or what was made of the updates of `members`.

    Floats are numbers in clear, and of several members their mean. Whole numbers are words of the ring, hidden or not,
    and of several members their sum. `samples` is the weight, where the message tells it.
    """

    vector: Tensor = field(repr=False)
    samples: int | None = None
    members: tuple[PartyId, ...] = ()

    @property
    def in_clear(self) -> bool:
        """Whether these are real numbers, and no words that could hide something."""
        return self.vector.dtype.kind == "f"


def longest_vector(message: Message) -> Carried | None:
    """The longest vector that is not sealed, as its sender's own: what is assumed if nobody says more."""
    values = (getattr(message, one.name) for one in fields(message))
    vectors = [one for one in values if isinstance(one, np.ndarray) and one.dtype.str != _SEALED and len(one)]
    return Carried(max(vectors, key=len)) if vectors else None
