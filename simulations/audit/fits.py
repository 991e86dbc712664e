"""What can be refused before anything is played: names, sizes, and attacks that cannot fit what they are asked for."""

from __future__ import annotations

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import SERVER
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.defences.parse import parse_defence
from veilsum.roles.learning.defences.registry import find_defence
from veilsum.roles.views.view import BROKER
from veilsum.simulations.attacks.misfits import AttackDoesNotFit
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.stage import attackable_task
from veilsum.simulations.run.adversaries import members_of


def require_fit(request: Request) -> None:
    """Raise a typed error that names what is wrong and what would do; playing and attacking start after this."""
    entry = request.entry
    config = request.config()
    config.require_workable()
    _require_adversary(request, config)
    task = attackable_task(config)
    wanted = request.images * request.parties
    if wanted > len(task.train):
        raise ParameterError(
            [
                f"{request.parties} parties with {request.images} images each need {wanted}: {config.task} has "
                f"{len(task.train)}"
            ]
        )
    _require_scheme(request, config)
    if entry.needs_defence and entry.against not in _defences(request):
        form = find_defence(entry.against).form
        raise AttackDoesNotFit(
            f"{request.attack} is made for the defence {entry.against}: add --defence {form}"
        )


def _require_scheme(request: Request, config: FederationConfig) -> None:
    """Whether the attack has something to work on under this scheme."""
    entry, perturbs = request.entry, config.load_scheme().perturbs
    if perturbs and entry.needs_gradient and SERVER not in members_of(request.adversary, config.parties):
        raise AttackDoesNotFit(
            f"{request.attack} needs a gradient, and {request.adversary} sees perturbed models only under "
            f"{request.scheme}: use perturbation or one of the attacks noise-*"
        )
    if perturbs and (entry.needs_steps or entry.needs_rounds):
        raise AttackDoesNotFit(
            f"{request.attack} is made for models that parties train step by step, and {request.scheme} recovers one "
            "gradient per round: use noise-membership or one of the attacks noise-*"
        )
    if entry.needs_perturbation and not perturbs:
        raise ParameterError(
            [f"{request.attack} is an attack on perturbed and bilateral, not on {request.scheme}"]
        )
    if entry.needs_chain and not config.load_scheme().has_chain:
        raise AttackDoesNotFit(
            f"{request.attack} subtracts sums of models, of which {request.scheme} shows none: use masked, mpc or ampc"
        )
    if entry.needs_scheme and not request.meets_its_scheme:
        raise ParameterError([f"{request.attack} is an attack on {entry.against}, not on {request.scheme}"])


def _require_adversary(request: Request, config: FederationConfig) -> None:
    members = members_of(request.adversary, config.parties)
    if members == (BROKER,):
        raise AttackDoesNotFit(
            f"{request.attack} does not fit the view of the broker: it holds envelopes only"
        )
    _require_side(request, members)
    outside = set(config.parties) - set(members)
    if request.entry.needs_gradient and not outside:
        raise AttackDoesNotFit(f"{request.adversary} is every party: no one is left to be attacked")
    if request.entry.needs_rounds and SERVER not in members and len(outside) > 1:
        raise AttackDoesNotFit(
            f"{request.attack} needs one party's updates over rounds, and {request.adversary} sees means only: use "
            "--adversary server or others"
        )


def _require_side(request: Request, members: tuple[str, ...]) -> None:
    """Some attacks need what only the server has, others what only a client has."""
    by = request.entry.by
    server, client = SERVER in members, any(name != SERVER for name in members)
    if by == "both" and not (server and client):
        raise AttackDoesNotFit(
            f"{request.attack} needs what the server and a participant hold together: use --adversary coalition"
        )
    if (by == "server" and not server) or (by == "client" and not client):
        raise AttackDoesNotFit(
            f"{request.attack} needs the view of a {by}, and {request.adversary} has none: use --adversary {by}"
        )


def _defences(request: Request) -> set[str]:
    return {part.name for part in parse_defence(request.defence).parts} if request.defence else set()
