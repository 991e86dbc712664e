"""The audit of everything: which requests `veilsum audit all` makes, and what it leaves out at smoke scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from veilsum.roles.config.schemes import load_scheme
from veilsum.roles.learning.defences.registry import built_in_defences
from veilsum.simulations.attacks.registry import ATTACKS
from veilsum.simulations.audit.report.verdicts import REALISTIC_IMAGES
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.scales import Scale
from veilsum.simulations.audit.sweeps.perturbed_models import SCHEMES as PERTURBING
from veilsum.simulations.audit.sweeps.perturbed_models import perturbation_requests
from veilsum.simulations.audit.sweeps.sweeps import sweep_requests

SCHEMES = ("plain", "masked", "mpc", "ampc")
ALL_SCHEMES = (*SCHEMES, *PERTURBING)
_ON_SINGLE_IMAGES, _ON_BATCHES = "idlg", "inverting"


def all_requests(scale: Scale, seed: int, task: str, data: str | None) -> list[Request]:
    """Every scheme by every adversary, then every defence by its naive and its adaptive attack."""

    def request(scheme: str, adversary: str, attack: str, defence: str = "") -> Request:
        return Request(scheme, adversary, attack, scale, seed, defence, task, data)

    found = [request("plain", "server", attack) for attack in ("analytic", "dlg", "idlg", "inverting")]
    for scheme in SCHEMES:
        server = (
            ("server",) if load_scheme(scheme).hides_updates else ()
        )  # else it stands above, by more attacks
        found += [
            request(scheme, adversary, "idlg") for adversary in (*server, "client", "coalition", "others")
        ]
    found += [request("ampc", "server", "model"), request("ampc", "coalition", "ampc-coalition")]
    for defence in built_in_defences():
        text = f"{defence.name}:{defence.trial.settings}"
        found += [request("plain", "server", attack, text) for attack in defence.trial.attacks]
    found += sweep_requests(scale, seed, task, data)
    memberships = (
        ("mia-loss", "mia-network") if not scale.heavy else ("mia-loss", "mia-network", "mia-shadow")
    )
    found += [request("plain", "client", attack) for attack in memberships]
    found.append(request("ampc", "server", "mia-loss"))
    found += perturbation_requests(scale, seed, task, data)
    found += server_requests(scale, seed, task, data)
    found += realistic(found)
    if scale.heavy:
        found += [request("plain", "server", name) for name in ("generative", "gmi") if name in ATTACKS]
    return found


def realistic(requests: Sequence[Request]) -> Iterator[Request]:
    """For every inversion of undefended training one with a realistic batch: what is read of single images is not what
    is read of training.

    By the attack that gets furthest with batches. One draw at every scale, since a batch has images enough. Uploads
    that a scheme hides are left alone: whatever the batch, they are uniform words.
    """
    for one in requests:
        if one.attack == _ON_SINGLE_IMAGES and one == replace(
            one, defence="", images=1, local_epochs=1, parties=4
        ):
            hidden = load_scheme(one.scheme).hides_updates and one.adversary != "others"
            yield replace(
                one,
                attack=_ON_BATCHES,
                images=REALISTIC_IMAGES,
                scale=replace(one.scale, draws=1),
                only_sums=hidden,
            )


def server_requests(scale: Scale, seed: int, task: str, data: str | None) -> Iterator[Request]:
    """What a server gets that chooses the model, or has two sums which differ by one party, under every scheme."""
    for scheme in ALL_SCHEMES:
        attacks = ["imprint", "trap-weights"]
        if scheme in SCHEMES:
            attacks.append("sums-at-one-model")
            attacks += ["sums-over-rounds"] if load_scheme(scheme).hides_updates else []
        yield from (Request(scheme, "server", attack, scale, seed, "", task, data) for attack in attacks)


def left_out(scale: Scale) -> Iterator[str]:
    """What this scale does not run, in words."""
    if not scale.heavy:
        names = [entry.name for entry in ATTACKS.values() if entry.heavy]
        yield f"scale {scale.name} leaves out {', '.join(names)}: use --scale quick or full"
