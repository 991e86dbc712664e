"""The server of AMPC with one peer: the peer's seeds take the biases off the server's sum.

Every peer knows every bias, by design, because every peer must be able to add them back. So one seed holder is enough
to give the server the global model of each round it has recorded. Individual updates stay under the shares and
self masks of the others.

Implements specs/attacks.md, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from veilsum.protocol.chain.state import hash_model
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.graphs.graph import complete
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.schemes.ampc.decomposition import SessionSecrets, add_biases_back, group_key_of
from veilsum.protocol.schemes.ampc.messages import Aggregate
from veilsum.protocol.secure_sum.verification import untagged
from veilsum.roles.learning.contract import apply_update
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.attack import ModelRecovery
from veilsum.simulations.attacks.facts import config_of, require_plain_step
from veilsum.simulations.attacks.gradient.matching import AttackDoesNotFit


@dataclass(frozen=True, eq=False)
class Recovered:
    """The global model after a round."""

    round: int
    model: Model


class AmpcCoalition(ModelRecovery):
    """The global model after the last round of the view."""

    name = "ampc-coalition"
    knowledge = "L2"
    summary = "biases off with one peer's seeds"
    against = "ampc"
    by = "both"
    needs_scheme = True

    def form(self, view: View) -> Model:
        return recover_models(view)[-1].model


def recover_models(view: View) -> list[Recovered]:
    """The global model after each round, from biased sums and one peer's seeds alone."""
    sums: dict[int, Aggregate] = {}
    for source in (view.sent, view.received):
        for _, message in source(Aggregate):
            sums[message.stamp.round] = message
    if not sums:
        raise AttackDoesNotFit("the view holds no biased sum: it is not of an ampc server or peer")
    keys = {one.session: one for one in view.session_keys if one.biases}
    if not keys:
        raise AttackDoesNotFit("the view holds no bias seeds: add a peer to the coalition, e.g. server+p1")
    config = config_of(view.facts)
    require_plain_step(config)
    parameters, training = config.parameters(view.facts.dimension), config.training_options()
    encoding = parameters.encoding
    model, found = view.initial_model, []
    for round_, message in sorted(sums.items()):
        stamp = replace(message.stamp, model_hash=hash_model(model))
        total = np.array(message.vector, dtype=encoding.ring.dtype)
        secrets = _secrets(keys[message.stamp.session].biases, message.survivors)
        add_biases_back(encoding.ring, total, secrets, stamp, message.survivors, parameters.bias)
        mean, _ = encoding.decode_mean(untagged(total), len(message.survivors))
        model = apply_update(model, mean, training.payload, training.learning_rate_at(round_))
        found.append(Recovered(round_, model))
    return found


def _secrets(biases: Mapping[str, Secret], members: tuple[PartyId, ...]) -> SessionSecrets:
    seeds: dict[PartyId, Secret] = {PartyId(name): seed for name, seed in biases.items()}
    return SessionSecrets(complete(members), group_key_of(seeds), {}, {}, seeds)
