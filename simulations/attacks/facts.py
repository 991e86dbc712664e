"""The public facts of a view as a configuration again.

A recorded view comes from a file, and a file does not choose what is imported: a scheme of a user's own is taken only
if its module was loaded already, because the user named it; defences and tasks are not loaded from here at all.
"""

from __future__ import annotations

import importlib

from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.user_code import is_loaded
from veilsum.roles.config.values import CODE_DIGESTS
from veilsum.roles.learning.datasets.registry import BUILT_IN
from veilsum.roles.views.view import PublicFacts
from veilsum.simulations.attacks.misfits import AttackDoesNotFit


def config_of(facts: PublicFacts) -> FederationConfig:
    """The federation's agreed settings as a configuration again, without its defence."""
    left_out = ("defence", CODE_DIGESTS)
    known = {
        name: value for name, value in facts.settings.items() if value is not None and name not in left_out
    }
    scheme = str(known.get("scheme", ""))
    if ":" in scheme and not is_loaded(scheme):
        raise AttackDoesNotFit(f"the view was recorded under {known['scheme']}: name it with --scheme too")
    if "model" not in known:
        known["model"] = default_model(str(facts.settings["task"]))
    return FederationConfig.from_options({**known, "parties": tuple(facts.parties)})


def require_plain_step(config: FederationConfig) -> None:
    """Refuse to follow sums where another step was taken than applying the mean: an attack does not take it."""
    if config.training_options().steps_with_optimizer:
        raise AttackDoesNotFit(
            f"the step on the mean was {config.server_optimizer}, and this attack follows server_optimizer sgd only"
        )


def default_model(task: str) -> str | None:
    """The architecture that a built-in task has if nobody names another."""
    place = BUILT_IN.get(task.partition(":")[0])
    if place is None:
        return None
    found: str = importlib.import_module(place.partition(":")[0]).DEFAULT_MODEL
    return found
