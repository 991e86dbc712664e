"""What `audit all` asks about perturbed models: which requests it makes, and what the truth about their rounds is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from veilsum.protocol.numbers.model import Model
from veilsum.roles.views.view import OwnUpdate
from veilsum.simulations.attacks.exposed import Exposed
from veilsum.simulations.attacks.perturbation.keys import PerturbationKeys
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.scales import Scale
from veilsum.simulations.audit.stage import Played, attackable_task

SCHEMES = ("perturbed", "bilateral")
_MODEL = "mlp2:64"
_ALIKE = 1e-3


def perturbation_requests(scale: Scale, seed: int, task: str, data: str | None) -> Iterator[Request]:
    """Both schemes by every adversary, with the attacks that are made for them, and the seeds of ampc."""

    def request(scheme: str, adversary: str, attack: str, model: str | None = None) -> Request:
        return Request(scheme, adversary, attack, scale, seed, "", task, data, model)

    for scheme in SCHEMES:
        yield from (request(scheme, adversary, "idlg", _MODEL) for adversary in ("server", "coalition"))
        yield from (
            request(scheme, "client", attack) for attack in ("perturbation", "noise-line", "noise-exchange")
        )
        yield request(scheme, "server", "noise-softmax")
    for attack in ("noise-data-free", "noise-factors", "noise-signs", "noise-membership"):
        yield request("perturbed", "client", attack)
    yield request("bilateral", "server", "noise-shared-mask")
    yield from (request("ampc", "server", attack) for attack in ("seeds-reused", "seeds-weak"))


def true_updates(played: Played) -> Mapping[tuple[str, int], Model]:
    """Every party's own update by party and round; of terms on a perturbed model the gradient behind them."""
    updates: tuple[OwnUpdate, ...] = played.views.view(*played.config.parties).own_updates
    if not played.config.perturbs:
        return {(one.party, one.round): one.payload for one in updates}
    keys = PerturbationKeys(played.view("server"))
    return {
        (one.party, one.round): keys.gradient(one.round, one.payload.astype(np.float64)).astype(np.float32)
        for one in updates
    }


def predicts_alike(played: Played, model: Model) -> bool:
    """Whether a model of other weights has the outputs of the true one on the test set."""
    test, facts = attackable_task(played.config).test, played.view("server").facts
    found, truth = (Exposed(facts, one).logits(test).numpy() for one in (model, played.model))
    return bool(np.abs(found - truth).max() <= _ALIKE * np.abs(truth).max())
