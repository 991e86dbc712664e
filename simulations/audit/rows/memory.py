"""Attacks that were made already: the same gradient meets several adversaries, and is inverted once.

A coalition holds what its members hold, and under `plain` every adversary that knows the server knows the same uploads.
An attack follows from its target, budget and seed alone, so its result can be kept; the CPU seconds of a row are
those that the attack took when it was made.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import replace

from veilsum.protocol.errors import LocalProtocolError
from veilsum.simulations.attacks.attack import Attack, GradientInversion
from veilsum.simulations.attacks.gradient.matching import Budget, Reconstruction
from veilsum.simulations.attacks.gradient.targets import Target
from veilsum.simulations.attacks.misfits import AttackDoesNotFit

_MOST = 1000
_made: OrderedDict[bytes, Reconstruction] = OrderedDict()


def inverted(attack: Attack, target: Target, budget: Budget, seed: int) -> Reconstruction:
    """What the attack makes of the target, now or remembered."""
    if not isinstance(attack, GradientInversion):
        raise AttackDoesNotFit(f"{attack.name} does not invert single gradients")
    key = _key(f"{type(attack).__module__}.{type(attack).__qualname__} {attack.name}", target, budget, seed)
    if key not in _made:
        _made[key] = _require_images(attack.name, attack.invert(target, budget, seed))
        if len(_made) > _MOST:
            _made.popitem(last=False)
    return replace(_made[key], target=target)


def _require_images(attack: str, found: object) -> Reconstruction:
    """What an attack of whatever author gave, if it is as many images as stand behind its target."""
    if not isinstance(found, Reconstruction):
        raise LocalProtocolError(f"{attack} gave {found!r:.60}, not a Reconstruction: correct it")
    wanted = (found.target.batch, *found.target.facts.input_shape)
    if found.images.shape != wanted:
        raise LocalProtocolError(
            f"{attack} gave images of shape {found.images.shape}, not {wanted}: correct it"
        )
    return found


def _key(attack: str, target: Target, budget: Budget, seed: int) -> bytes:
    """A hash of everything that an attack reads."""
    facts = target.facts
    known = (
        attack,
        target.owners,
        target.round,
        target.batch,
        target.local_steps,
        target.learning_rate,
        facts.settings.get("model"),
        facts.input_shape,
        facts.outputs,
        budget,
        seed,
    )
    return hashlib.sha256(repr(known).encode() + target.model.tobytes() + target.gradient.tobytes()).digest()
