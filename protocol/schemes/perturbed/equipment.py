"""What perturbing schemes need of the role that runs them, without torch.

The algebra needs the traced model; machines only pass vectors around. So a machine is equipped with an object of one
of these kinds, and calls it inside the jobs that it requests. A test gives it twenty lines of numpy instead.

    server   perturbation = equipment.perturb(model, round, random)   send perturbation.model and perturbation.public
    client   asked = equipment.ask(...)                               only where `asks`: cross entropy with an offset
    server   perturbation.answer(asked.request, random)
    client   equipment.compute(...)                                   all terms, one after the other, in one vector
    server   perturbation.recover(mean of the vectors)                the mean of the true payloads

Implements specs/perturbation.md, section 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.numbers.model import LocalResult, Model
from veilsum.protocol.perturbation.contract import Asked, ExchangeReply, ExchangeRequest, RecoveredMean
from veilsum.protocol.perturbation.draws import Reals
from veilsum.protocol.perturbation.public import PublicPerturbation
from veilsum.protocol.randomness import RandomBytes


class Perturbation(Protocol):
    """The server's secret of one attempt, and what it made of the model."""

    @property
    def model(self) -> Model:
        """The perturbed model, as clients get it."""

    @property
    def public(self) -> PublicPerturbation:
        """What clients are told besides."""

    def require_request(self, request: ExchangeRequest) -> None:
        """Refuse a request that cannot be answered; light."""

    def answer(self, request: ExchangeRequest, random: RandomBytes) -> ExchangeReply:
        """What a client that asks is told."""

    def recover(self, terms: Reals) -> RecoveredMean:
        """Raises `PrecisionLost` when nothing but rounding would come out."""


class ServerPerturbation(Protocol):
    """`terms` are the names and lengths of what clients upload, in order; `asks` whether they must ask first."""

    @property
    def terms(self) -> Mapping[str, int]:
        """The names and lengths of what clients upload, in order."""

    @property
    def asks(self) -> bool:
        """Whether clients must ask before they can finish."""

    def perturb(self, model: Model, round: int, random: RandomBytes) -> Perturbation:
        """Draw the perturbation of one attempt."""

    def protected_model(self, model: Model, random: RandomBytes) -> Model:
        """What clients keep: true predictions, other weights."""

    def adapt(self, condition: float) -> None:
        """Let the size of the offset follow the condition number of the last recovery."""


class ClientPerturbation(Protocol):
    """What a client computes on a perturbed model with."""

    @property
    def terms(self) -> Mapping[str, int]:
        """The names and lengths of what it uploads, in order."""

    @property
    def asks(self) -> bool:
        """Whether it must ask the server before it can finish."""

    def require_public(self, public: PublicPerturbation) -> None:
        """Refuse a perturbation that does not fit the agreed settings or our own model; light."""

    def ask(self, model: Model, public: PublicPerturbation, round: int, random: RandomBytes) -> Asked:
        """The first half of the local work, where the server must be asked."""

    def compute(
        self,
        model: Model,
        public: PublicPerturbation,
        round: int,
        asked: Asked | None,
        reply: ExchangeReply | None,
    ) -> LocalResult:
        """All terms end to end, in float32."""


def server_equipment(equipment: object | None) -> ServerPerturbation:
    """The server's perturbation, or `LocalProtocolError` if its machine was given none."""
    _require(equipment, ("terms", "asks", "perturb", "protected_model", "adapt"), "the server")
    return cast(ServerPerturbation, equipment)


def client_equipment(equipment: object | None) -> ClientPerturbation:
    """A client's perturbation, or `LocalProtocolError` if its machine was given none."""
    _require(equipment, ("terms", "asks", "require_public", "ask", "compute"), "a client")
    return cast(ClientPerturbation, equipment)


def _require(equipment: object | None, members: tuple[str, ...], who: str) -> None:
    missing = [name for name in members if not hasattr(equipment, name)]
    if missing:
        raise LocalProtocolError(
            f"{who} of a perturbing scheme needs its perturbation, not {type(equipment).__name__} without "
            f"{', '.join(missing)}: pass it to the machine as equipment"
        )
