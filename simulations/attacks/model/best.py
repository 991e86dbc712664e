"""The best model that an adversary can form: the true one where it may, words read as numbers where not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.errors import ProtocolError, Rejection
from veilsum.protocol.machines.session import Farewell, RoundOpened
from veilsum.protocol.numbers.fixedpoint import FixedPoint
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.wire.messages import Tensor
from veilsum.roles.learning.contract import apply_update
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.attack import ModelRecovery
from veilsum.simulations.attacks.carried import sums_in
from veilsum.simulations.attacks.facts import config_of, require_plain_step
from veilsum.simulations.attacks.gradient.matching import AttackDoesNotFit
from veilsum.simulations.attacks.gradient.targets import read_words


class BestModel(ModelRecovery):
    """Whatever the view gives."""

    name = "model"
    summary = "the best model that the view gives"

    def form(self, view: View) -> Model:
        return best_model(view)


def best_model(view: View) -> Model:
    """The newest model in the view, computed, received, or formed from sums."""
    if not view.members:
        raise AttackDoesNotFit("the broker sees no model: there is nothing to attack")
    computed = [one for one in view.results if one.model is not None]
    if computed:
        model = max(computed, key=lambda one: one.round).model
        assert model is not None
        return model
    for kind in (Farewell, RoundOpened):
        models = [message.model for _, message in view.received(kind) if len(message.model)]
        if models:
            last: Model = models[-1]
            return last
    return _from_sums(view)


def _from_sums(view: View) -> Model:
    """Follow the rounds from the public first model, with each sum as well as it can be read."""
    config = config_of(view.facts)
    require_plain_step(config)
    training, encoding = config.training_options(), config.parameters(view.facts.dimension).encoding
    totals = {one.round: (one.total, len(one.members)) for one in view.results if one.total is not None}
    for round_, carried in sums_in(view):
        totals.setdefault(round_, (carried.vector, len(carried.members)))
    model = view.initial_model
    for round_, (total, parties) in sorted(totals.items()):
        assert total is not None
        try:
            mean = _mean(encoding, total, parties)
            model = apply_update(model, mean, training.payload, training.learning_rate_at(round_))
        except ProtocolError:
            break
    return model


def _mean(encoding: FixedPoint, total: Tensor, parties: int) -> NDArray[np.float64]:
    """Numbers in clear are the mean itself; words that do not decode are read as a sum all the same."""
    if total.dtype.kind == "f":
        return total.astype(np.float64)
    try:
        return encoding.decode_mean(total, parties)[0]
    except Rejection:
        return np.asarray(read_words(encoding, total, encoding.max_weight * parties), dtype=np.float64)
