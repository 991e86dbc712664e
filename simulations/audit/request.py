"""What a user asks an audit for, and the federations that are played for it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.schemes.plain import Plain
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.schemes import load_scheme
from veilsum.simulations.attacks.attack import Attack
from veilsum.simulations.attacks.budget import Budget
from veilsum.simulations.attacks.registry import find_attack
from veilsum.simulations.audit.scales import Scale
from veilsum.simulations.audit.stage import Played, play

BASELINE = Plain.name
"""The scheme that protects nothing, which others are compared with."""
_ANY_ATTACK = "idlg"
_PERTURBABLE = "mlp2:64"
"""In place of dlnet, whose sigmoids carry no factors."""


@dataclass(frozen=True)
class Request:
    """One attack on the view of one adversary under one scheme and defence."""

    scheme: str
    adversary: str
    attack: str
    scale: Scale
    seed: int = 7
    defence: str = ""
    task: str = "digits"
    data: str | None = None
    model: str | None = None
    parties: int = 4
    images: int = 1
    payload: str = "gradient"
    local_epochs: int = 1
    rounds: int = 1
    references: bool = True
    """Whether the undefended, null and oracle rows are wanted too."""
    only_sums: bool = False
    """Whether single uploads are left alone and only sums attacked."""

    def __post_init__(self) -> None:
        problems = []
        if self.parties < 2:
            problems.append(f"parties must be at least 2, not {self.parties}")
        if self.images < 1:
            problems.append(f"images must be at least 1, not {self.images}")
        if self.rounds < 1:
            problems.append(f"rounds must be at least 1, not {self.rounds}")
        if self.local_epochs < 1:
            problems.append(f"local epochs must be at least 1, not {self.local_epochs}")
        if problems:
            raise ParameterError(problems)

    @property
    def entry(self) -> Attack:
        return find_attack(self.attack)

    @property
    def architecture(self) -> str:
        """The model that is attacked: the user's, or the attack's own if the scheme can perturb that."""
        if self.model is not None:
            return self.model
        return (
            _PERTURBABLE
            if load_scheme(self.scheme).perturbs and self.entry.model == Attack.model
            else self.entry.model
        )

    @property
    def is_baseline(self) -> bool:
        """Whether nothing protects the parties, so that there is no undefended row beside it."""
        scheme = load_scheme(self.scheme)
        return not (scheme.hides_updates or scheme.perturbs or self.defence)

    @property
    def meets_its_scheme(self) -> bool:
        """Whether the scheme is the one that the attack is made for, or derived from it."""
        return isinstance(load_scheme(self.scheme), type(load_scheme(self.entry.against)))

    @property
    def budget(self) -> Budget:
        """What the attack on one target may cost at this scale."""
        scale = self.scale
        return replace(scale.budget, images=self.images, epochs=scale.epochs, shadows=scale.shadows)

    @property
    def unprotected(self) -> Request:
        """The same under plain FedAvg and without a defence."""
        return replace(self, scheme=BASELINE, defence="")

    @property
    def undefended(self) -> Request:
        """The same attack by the server of plain FedAvg on unprotected training."""
        return replace(self.unprotected, adversary="server", model=self.architecture)

    @property
    def unmasked(self) -> Request:
        """The same attack under the same scheme without masks: itself, where it has none."""
        return replace(self, scheme=load_scheme(self.scheme).unmasked or self.scheme)

    def config(self) -> FederationConfig:
        return FederationConfig.from_options(
            {
                "name": "audit",
                "scheme": self.scheme,
                "parties": self.parties,
                "rounds": self.rounds,
                "seed": self.seed,
                "task": self.task,
                "data": self.data,
                "model": self.architecture,
                "payload": self.payload,
                "local_epochs": self.local_epochs,
                "batch_size": "all",
                "device": "cpu",
                "min_parties": 2 if self.parties == 2 and load_scheme(self.scheme).hides_updates else None,
                **({"defence": self.defence} if self.defence else {}),
            }
        )

    def stages(self) -> Iterator[Played]:
        """The federations to attack; the same for every adversary and every attack on the same model."""
        same = replace(
            self,
            adversary="server",
            attack=_ANY_ATTACK,
            model=self.architecture,
            references=True,
            only_sums=False,
        )
        return (_stage(same, draw) for draw in range(self.scale.draws))


@functools.lru_cache(maxsize=32)
def _stage(request: Request, draw: int) -> Played:
    return play(request.config(), request.images, draw)
