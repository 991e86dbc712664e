"""Every attack on every adversary under every scheme: rows, or a refusal before any work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.learning.training.determinism import one_thread
from veilsum.simulations.attacks.gradient.matching import Budget
from veilsum.simulations.attacks.registry import ATTACKS
from veilsum.simulations.audit import request as requests
from veilsum.simulations.audit.experiments import rows_of
from veilsum.simulations.audit.fits import require_fit
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.scales import find_scale
from veilsum.simulations.audit.steps import Steps

TINY = replace(
    find_scale("smoke"),
    budget=Budget(4, 0),
    members=40,
    epochs=8,
    shadows=1,
    generator_steps=2,
)
SCHEMES = ("plain", "masked", "mpc", "ampc", "perturbed", "bilateral")
ADVERSARIES = ("server", "client", "coalition", "others", "broker", "p2+p3")


def refused(request: Request) -> bool:
    try:
        require_fit(request)
    except LocalProtocolError as error:
        assert str(error)
        return True
    return False


@pytest.mark.long
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_combination_gives_rows_or_is_refused_before_it_is_played(attack: str, scheme: str) -> None:
    defence = (
        "sketch:ratio=2" if attack == "sketch-rounds" and scheme not in ("perturbed", "bilateral") else ""
    )
    for adversary in ADVERSARIES:
        request = Request(scheme, adversary, attack, TINY, defence=defence)
        if refused(request):
            continue
        with one_thread():
            rows = list(rows_of(request, Steps()))
        kinds = {row.row for row in rows}
        assert "attack" in kinds
        assert "null" in kinds
        assert "oracle" in kinds
        assert all(row.threat for row in rows if row.row == "attack")


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_refusal_plays_nothing(monkeypatch: pytest.MonkeyPatch, scheme: str, adversary: str) -> None:
    """Whether a request fits is known from names and sizes, and no attack at all fits the broker."""

    def played(*_: object) -> None:
        raise AssertionError("a federation was played")

    monkeypatch.setattr(requests, "play", played)
    found = [refused(Request(scheme, adversary, attack, TINY)) for attack in ATTACKS]
    if adversary == "broker":
        assert all(found)
    else:
        assert not all(found)
