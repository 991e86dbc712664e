"""What can go wrong with a perturbation without anybody else being to blame."""

from __future__ import annotations

from veilsum.protocol.errors import EncodingError, LocalProtocolError

FAILURES_OF_MODELS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError),
)
"""What code of users raises when it is traced or run on something it was not written for."""


def first_line(error: Exception) -> str:
    """The first sentence or so: torch explains at length."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


class UnsupportedModel(LocalProtocolError):
    """A model cannot carry secret factors; the node at fault and the reason are named."""

    def __init__(self, node: str, reason: str) -> None:
        self.node = node
        self.reason = reason
        super().__init__(f"{node}: {reason}")


class PrecisionLost(LocalProtocolError):
    """Recovery would return rounding noise; the remedy is a smaller offset, named in the error."""

    def __init__(self, condition: float, gamma: float, suggested_gamma: float) -> None:
        self.condition = condition
        self.gamma = gamma
        self.suggested_gamma = suggested_gamma
        super().__init__(
            f"condition number {condition:.3g} at gamma {gamma:.3g} leaves no correct digit of the gradient; "
            f"repeat the round with gamma at most {suggested_gamma:.3g}"
        )


class TermTooLarge(EncodingError):
    """A term does not fit the words in which it would be masked."""

    told = "a term does not fit the range of the words; agree on a smaller gamma, or use alpha 'mean'"

    def __init__(self, term: str, cause: EncodingError) -> None:
        self.term = term
        super().__init__(f"term {term}: {self.told} ({cause})")


class ExchangeOverflow(LocalProtocolError):
    """The printed cross-entropy exchange cannot represent its numbers; the logarithmic one can."""

    told = "the printed exchange overflows; agree on a smaller gamma, or use the log exchange"

    def __init__(self, spread: float, limit: float) -> None:
        self.spread = spread
        self.limit = limit
        super().__init__(
            f"the printed exchange needs exp({spread:.3g}); beyond exp({limit:.3g}) its cancellation loses "
            "every digit; use the log exchange or a smaller gamma"
        )
