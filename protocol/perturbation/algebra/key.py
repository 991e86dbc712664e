"""The server's secret of one round, and what it does to parameters.

Every hidden channel has a factor f > 0. A weight from channel i to channel o is multiplied by f[o] / f[i], so
positive homogeneity makes every hidden value f times the true one and leaves the output alone. The last
layer then receives an offset of rank one: output i moves by alpha * gamma[group of i] * direction[i], where
alpha is a public linear function of the perturbed features. Its bias is sent as it is: an offset there would
be a copy of the secret with the true bias as its only cover.

A key is drawn afresh every round. With a fixed key the ratio of two rounds' weights would be the true one.

Implements specs/perturbation.md, section 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log2

from veilsum.protocol.errors import EncodingError
from veilsum.protocol.perturbation.algebra.layout import is_finite
from veilsum.protocol.perturbation.draws import Reals, UniformStream
from veilsum.protocol.perturbation.public import (
    DIRECTIONS_TYPE,
    KEY_ID_BYTES,
    PARTITION_TYPE,
    PublicPerturbation,
)
from veilsum.protocol.perturbation.settings import PerturbationSettings
from veilsum.protocol.perturbation.tracing.plan import PerturbationPlan
from veilsum.protocol.randomness import RandomBytes

_MAGNITUDES = (0.5, 1.5)


@dataclass(frozen=True, eq=False, repr=False)
class PerturbationKey:
    """`scale` per parameter entry, `gammas` and `blinders` per group, `shifts` per output, `loss_shift` once.

    The last three belong to the cross-entropy exchange.
    """

    plan: PerturbationPlan
    settings: PerturbationSettings
    public: PublicPerturbation
    scale: Reals
    gammas: Reals
    blinders: Reals
    shifts: Reals
    loss_shift: float

    def __repr__(self) -> str:
        return f"<perturbation key {self.public.key_id.hex()[:8]}, secrets not shown>"

    @property
    def offset(self) -> Reals:
        """The secret offset of every output per unit of alpha."""
        return self.gammas[self.public.partition] * self.public.directions

    def perturb(self, parameters: Reals, *, inference: bool = False) -> Reals:
        """Perturb a flat parameter vector; with `inference` the offset stays out and predictions are true."""
        if parameters.shape != (self.plan.size,):
            raise EncodingError(f"the model has {self.plan.size} parameters, the vector {parameters.shape}")
        perturbed = parameters * self.scale
        if self.settings.has_offset and not inference:
            head = self.plan.head
            weight = perturbed[self.plan.head_slices()[0]].reshape(head.outputs, head.features)
            weight += (self.offset * self.public.feature_weight)[:, None]
        if not is_finite(perturbed):
            raise EncodingError("the model has parameters that are not finite")
        return perturbed


def new_key(plan: PerturbationPlan, settings: PerturbationSettings, random: RandomBytes) -> PerturbationKey:
    """Draw the perturbation of one round."""
    settings.require_fits(plan)
    stream = UniformStream(random)
    scale = plan.scale(plan.table.evaluate(_draw_factors(stream, plan.table.free, settings)))
    outputs, groups = (plan.head.outputs, settings.groups) if settings.has_offset else (0, 0)
    public = PublicPerturbation(
        key_id=stream.octets(KEY_ID_BYTES),
        plan_digest=plan.digest,
        mode=settings.mode,
        loss=settings.loss,
        exchange=settings.exchange,
        partition=(stream.permutation(outputs) % max(groups, 1)).astype(PARTITION_TYPE),
        directions=stream.signed(*_MAGNITUDES, outputs).astype(DIRECTIONS_TYPE),
        feature_weight=1.0 if settings.alpha == "sum" else 1.0 / plan.head.features,
    )
    return PerturbationKey(
        plan=plan,
        settings=settings,
        public=public,
        scale=scale,
        gammas=settings.gamma * stream.signed(*_MAGNITUDES, groups),
        blinders=stream.signed(*_MAGNITUDES, groups),
        shifts=stream.signed(*_MAGNITUDES, outputs),
        loss_shift=float(stream.signed(*_MAGNITUDES, 1)[0]),
    )


def _draw_factors(stream: UniformStream, count: int, settings: PerturbationSettings) -> Reals:
    low, high = settings.factor_range
    if settings.bit_exact:
        return stream.powers_of_two(ceil(log2(low)), floor(log2(high)), count)
    return stream.log_uniform(low, high, count)
