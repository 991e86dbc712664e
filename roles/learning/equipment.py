"""What the machine of a party is given besides: asked of the scheme first, in processes, simulations and tables alike.

A scheme that brings equipment of its own gets that. For one that agrees on the settings of a perturbation it is a
perturbation of the task's model: a client's learner, and at the server the traced network. All others have none.
Importing this file imports no torch; tracing does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from veilsum.protocol.agreed.parameters import Parameters
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.scheme import Scheme
from veilsum.protocol.schemes.perturbed.options import agree_on_perturbation
from veilsum.roles.learning.contract import Learner
from veilsum.roles.learning.datasets.vectors import VectorsTask
from veilsum.roles.learning.task import Task

if TYPE_CHECKING:
    from veilsum.roles.config.federation_config import FederationConfig
    from veilsum.roles.learning.perturbation.traced_task import TracedTask


def equip(
    scheme: Scheme, party: PartyId, parameters: Parameters, perturbation: Callable[[], object | None]
) -> object | None:
    """What the scheme brings for this party, else the perturbation where it perturbs, else nothing."""
    own = scheme.equipment_of(party, parameters)
    return perturbation() if own is None and scheme.perturbs else own


@dataclass(frozen=True)
class TaskEquipment:
    """The equipment of a federation that works on a task, which is looked for only where it is needed."""

    config: FederationConfig
    load_task: Callable[[], Task | VectorsTask]

    @cached_property
    def traced(self) -> TracedTask | None:
        """What both sides know about a perturbation of the task's model; None where the scheme agrees on none."""
        if not self.config.perturbs or not agree_on_perturbation(self.config.parameters(1).options):
            return None
        from veilsum.roles.learning.perturbation.traced_task import trace_task

        return trace_task(self.config, self.load_task())

    def of(self, party: PartyId, parameters: Parameters, learner: Learner | None) -> object | None:
        """What the machine of this party is given; `learner` is its own, and None at the server."""
        return equip(
            self.config.load_scheme(),
            party,
            parameters,
            lambda: self._perturbation_of(party, learner),
        )

    def _perturbation_of(self, party: PartyId, learner: Learner | None) -> object | None:
        if self.traced is None:
            return None
        if party != SERVER:
            return learner
        from veilsum.roles.learning.perturbation.server import TaskServerPerturbation

        return TaskServerPerturbation(self.traced, self.config.training_options())


def equipment_notes(equipment: object | None) -> Iterator[str]:
    """What the equipment of the scheme leaves open, said by itself."""
    warn = getattr(equipment, "warnings", None)
    return iter(()) if warn is None else warn()
