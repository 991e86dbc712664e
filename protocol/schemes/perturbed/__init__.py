"""Training on a perturbed model: `perturbed` uploads terms as they are, `bilateral` under zero-sum masks.

The papers LOSSLESS, PBPFL and PRACTICAL; the derivation is in specs/perturbation.md, limits and attacks in
specs/perturbation-limits.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from veilsum.protocol.agreed.parameters import Parameters, Recovery, Schedule
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.machines.attempt import AttemptMachine, ParticipantContext, ServerContext
from veilsum.protocol.machines.scheme import Scheme, secure_sum_problems
from veilsum.protocol.numbers.fixedpoint import FixedPoint, fits_budget
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.numbers.ring import Ring
from veilsum.protocol.randomness import RandomBytes
from veilsum.protocol.schemes.masked.messages import RoundKeys
from veilsum.protocol.schemes.perturbed.bilateral import BilateralClient, BilateralServer
from veilsum.protocol.schemes.perturbed.client import PerturbedClient
from veilsum.protocol.schemes.perturbed.equipment import client_equipment, server_equipment
from veilsum.protocol.schemes.perturbed.messages import PerturbedTerms, SoftmaxRequest
from veilsum.protocol.schemes.perturbed.options import (
    PERTURBATION_SETTINGS,
    perturbation_options,
    read_settings,
    setting_problems,
)
from veilsum.protocol.schemes.perturbed.server import PerturbedServer
from veilsum.protocol.schemes.registry import register
from veilsum.protocol.secure_sum.shares import ReleasedShares, SealedShares
from veilsum.protocol.secure_sum.survivors import SurvivorSignature
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.carried import Carried
from veilsum.protocol.wire.messages import Message

TERM_WORD_BITS = 64
_LARGEST_RANGE_BITS = 30


class Perturbing(Scheme):
    """A scheme whose parties are equipped with a perturbation of the task's model, and agree on its settings."""

    perturbs = True
    announces_next_hash = False

    def options_of(self, settings: Mapping[str, Any]) -> Mapping[str, str]:
        return perturbation_options(*(settings[name] for name in PERTURBATION_SETTINGS))

    def require_equipment(self, equipment: object | None, *, at_server: bool) -> None:
        if at_server:
            server_equipment(equipment)
        else:
            client_equipment(equipment)

    def parting_model(
        self, model: Model, equipment: object | None, random: RandomBytes, *, completed: bool
    ) -> Model | None:
        """A model that predicts the same and has other weights; none after a run that failed."""
        return server_equipment(equipment).protected_model(model, random) if completed else None

    def problems(self, parameters: Parameters) -> Iterator[str]:
        yield from setting_problems(parameters.options)
        if parameters.payload == "delta":
            yield f"{self.name} recovers one gradient per round: leave payload out"
        if parameters.schedule is not Schedule.FEDAVG:
            yield f"schedule '{parameters.schedule.value}' is for plain only: it passes models from hand to hand"


@register
class Perturbed(Perturbing):
    """Clients train on a perturbed model; the server sees every update, and recovers the mean gradient."""

    name = "perturbed"
    exact = False
    hides_updates = False
    default_min_parties = 1
    learns = {
        "server": "every individual gradient and the global model; with cross entropy and an offset also the "
        "softmax of every sample",
        "client": "a rescaled model; the true predictions and most of the perturbation, if it analyses what it holds",
        "broker": "who talks when, and how much",
    }
    drop_points = {"question": SoftmaxRequest, "upload": PerturbedTerms}
    machines = {"perturbed server": PerturbedServer, "perturbed client": PerturbedClient}

    def server_round(self, context: ServerContext) -> AttemptMachine:
        return PerturbedServer(context)

    def participant_round(self, context: ParticipantContext) -> AttemptMachine:
        return PerturbedClient(context)

    def carries(self, message: Message) -> Carried | None:
        return Carried(message.terms, message.samples) if isinstance(message, PerturbedTerms) else None

    def warnings(self, parameters: Parameters) -> Iterator[str]:
        yield "perturbed: the server sees the gradient of every client; use bilateral to hide them"
        if parameters.encoding.max_parties == 1:
            yield "perturbed with one client: it knows every gradient, so it can follow the true model from the first"


@register
class Bilateral(Perturbing):
    """As `perturbed`, under the masks of `masked`: the server sees the mean alone."""

    name = "bilateral"
    unmasked = Perturbed.name
    learns = {
        "server": "the mean of every term over at least min_parties survivors, hence the mean gradient and the "
        "global model; with cross entropy and an offset also the softmax of every sample",
        "client": "a rescaled model; the true predictions and most of the perturbation, if it analyses what it holds",
        "broker": "who talks when, and how much",
    }
    drop_points = {
        "keys": RoundKeys,
        "question": SoftmaxRequest,
        "shares": SealedShares,
        "upload": MaskedInput,
        "survivors": SurvivorSignature,
        "release": ReleasedShares,
    }
    machines = {"bilateral server": BilateralServer, "bilateral client": BilateralClient}

    def server_round(self, context: ServerContext) -> AttemptMachine:
        return BilateralServer(context)

    def participant_round(self, context: ParticipantContext) -> AttemptMachine:
        return BilateralClient(context)

    def carries(self, message: Message) -> Carried | None:
        return Carried(message.vector) if isinstance(message, MaskedInput) else None

    def problems(self, parameters: Parameters) -> Iterator[str]:
        yield from super().problems(parameters)
        yield from secure_sum_problems(parameters)

    def warnings(self, parameters: Parameters) -> Iterator[str]:
        if parameters.recovery is Recovery.NONE:
            yield "bilateral with recovery 'none': one missing upload ends the run"
        yield "bilateral: the server learns the mean of every term; a mean of few parties still tells about each"

    def plan_numbers(
        self, parties: int, max_weight: int, clip: float, bits: int, options: Mapping[str, str]
    ) -> FixedPoint:
        """Terms are larger than weights, and recovery multiplies their rounding: wide words, fixed fractions.

        The range is what the words leave; `clip` is about models and does not apply.
        """
        if bits != TERM_WORD_BITS:
            raise ParameterError([f"terms need {TERM_WORD_BITS}-bit words, not {bits}: set bits = 64"])
        ring, fraction = Ring(bits), read_settings(options).fraction_bits
        ranges = (2.0**exponent for exponent in range(_LARGEST_RANGE_BITS, -1, -1))
        widest = next((value for value in ranges if fits_budget(ring, parties, value, fraction)), clip)
        return FixedPoint(ring, fraction, widest, parties, max_weight)
