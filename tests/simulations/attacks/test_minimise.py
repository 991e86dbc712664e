"""How an optimisation is run: restarts after NaN, the end at a minimum, and nothing computed in vain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from veilsum.simulations.attacks.gradient.dlg import Idlg
from veilsum.simulations.attacks.gradient.matching import SMALL, Budget, Victim, fast_convolutions, minimise
from veilsum.simulations.attacks.registry import find_attack
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows import memory
from veilsum.simulations.audit.rows.gradient import targets_of
from veilsum.simulations.audit.scales import find_scale


def bowl(values: list[torch.Tensor]) -> torch.Tensor:
    return (values[0] - 3).square().sum()


def test_a_start_that_is_not_a_number_is_followed_by_another() -> None:
    def start(attempt: int) -> list[torch.Tensor]:
        return [torch.full((2,), float("nan") if attempt == 0 else 1.0)]

    best = minimise(start, bowl, Budget(50, 1))
    assert best.stopped == "converged"
    assert torch.allclose(best.values[0], torch.tensor(3.0))


def test_nan_in_every_start_is_reported_with_the_first_start_as_the_result() -> None:
    best = minimise(lambda _: [torch.ones(2)], lambda values: values[0].sum() * float("nan"), Budget(50, 2))
    assert best.stopped == "diverged"
    assert best.evaluations <= 150
    assert torch.equal(best.values[0].detach(), torch.ones(2))


@pytest.mark.parametrize("line_search", [True, False])
def test_a_start_ends_at_a_minimum_above_zero(line_search: bool) -> None:
    best = minimise(
        lambda _: [torch.zeros(2)], lambda values: bowl(values) + 1, Budget(5000, 0), line_search=line_search
    )
    assert best.stopped == "budget"
    assert best.evaluations < 200
    assert best.loss == pytest.approx(1.0)


def test_small_convolutions_leave_the_switch_as_it_was_and_change_results_by_rounding() -> None:
    switch: Any = torch.backends.mkldnn
    before = switch.enabled
    layer = torch.nn.Conv2d(1, 12, 5, padding=2)
    images = torch.rand(1, 1, 8, 8)
    usual = layer(images)
    with fast_convolutions(images):
        assert not switch.enabled
        assert torch.allclose(layer(images), usual, atol=1e-5)
    with fast_convolutions(torch.empty(SMALL + 1)):
        assert switch.enabled == before
    assert switch.enabled == before


def test_an_attack_computes_no_gradients_of_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the unknowns are differentiated: after an attack no parameter of the victim has a gradient."""
    victims: list[Victim] = []
    create = Victim.__init__

    def remembered(self: Victim, *arguments: Any) -> None:
        create(self, *arguments)
        victims.append(self)

    monkeypatch.setattr(Victim, "__init__", remembered)
    request = Request("plain", "server", "idlg", find_scale("smoke"))
    Idlg().invert(targets_of(request, next(request.stages()))[0], Budget(5, 0), 7)
    assert all(parameter.grad is None for one in victims for parameter in one.parameters)


def test_the_same_gradient_is_inverted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    invert = Idlg.invert

    def counted(self: Idlg, *given: Any) -> Any:
        calls.append(self.name)
        return invert(self, *given)

    monkeypatch.setattr(Idlg, "invert", counted)
    monkeypatch.setattr(memory, "_made", type(memory._made)())
    request = Request("plain", "server", "idlg", find_scale("smoke"))
    one, other = targets_of(request, next(request.stages()))[:2]
    entry, budget = find_attack("idlg"), Budget(5, 0)
    first, again = (memory.inverted(entry, one, budget, 7) for _ in range(2))
    assert first.match_loss == again.match_loss
    assert len(calls) == 1
    for target, budget_, seed in ((other, budget, 7), (one, Budget(6, 0), 7), (one, budget, 8)):
        memory.inverted(entry, target, budget_, seed)
    memory.inverted(entry, replace(one, round=1), budget, 7)
    assert len(calls) == 5
