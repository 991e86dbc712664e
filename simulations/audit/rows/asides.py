"""What `audit all` asks besides attacks: what the broker sees, and who can form which model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from veilsum.protocol.errors import LocalProtocolError
from veilsum.simulations.attacks.gradient.targets import gradients_in
from veilsum.simulations.audit.report.verdicts import NO_ATTACK
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.models import hides_and_recovers
from veilsum.simulations.audit.rows.row import Row
from veilsum.simulations.audit.steps import Steps

ModelLine = tuple[str, str, str, str]


@dataclass(frozen=True)
class BrokerJob:
    """That no attack fits the broker's view, checked for one scheme."""

    request: Request
    heavy = False

    @property
    def bundle(self) -> str:
        return f"asides {self.request.scheme}"

    def items(self, steps: Steps) -> Iterator[Row]:
        scheme = self.request.scheme
        steps(f"{scheme}: what the broker sees")
        view = next(self.request.stages()).view("broker")
        opened = [one for one in view.messages if one.message is not None]
        if opened or gradients_in(view, self.request.images) or view.results:
            raise LocalProtocolError(f"the broker's view under {scheme} holds more than envelopes")
        yield Row(
            scheme=scheme,
            defence="none",
            adversary="broker",
            attack=NO_ATTACK,
            knowledge="L0",
            row="attack",
            target=f"{len(view.messages)} envelopes",
            n=0,
            cpu_s=0.0,
            note="who talks when, and how much",
            threat=repr(view),
        )


@dataclass(frozen=True)
class ModelsJob:
    """Who hides and who recovers which model under one scheme."""

    request: Request
    heavy = False

    @property
    def bundle(self) -> str:
        return f"asides {self.request.scheme}"

    def items(self, steps: Steps) -> Iterator[ModelLine]:
        steps(f"{self.request.scheme}: who recovers which model")
        yield from hides_and_recovers(self.request)


def asides(request: Request, schemes: tuple[str, ...]) -> list[BrokerJob | ModelsJob]:
    """Both jobs for every scheme, the broker's first."""
    each = [replace(request, scheme=scheme, rounds=2) for scheme in schemes]
    return [*map(BrokerJob, each), *map(ModelsJob, each)]
