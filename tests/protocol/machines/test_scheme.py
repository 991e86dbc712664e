"""A scheme that keeps the true model from participants fails closed, and a name finds the scheme of its own module."""

from __future__ import annotations

import pytest

from tests.support.refusals import refusal
from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.protocol.machines.attempt import AttemptMachine, ParticipantContext, ServerContext
from veilsum.protocol.machines.scheme import Scheme, require_workable
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.randomness import RandomBytes
from veilsum.protocol.schemes import Masked, Plain, find_scheme, register, registry
from veilsum.protocol.schemes.perturbed.client import PerturbedClient
from veilsum.protocol.schemes.perturbed.equipment import server_equipment
from veilsum.protocol.schemes.perturbed.server import PerturbedServer
from veilsum.simulations.testing import Table


@pytest.fixture(autouse=True)
def forgotten_schemes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is unknown to the others."""
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))


class Forgetful(Scheme):
    """Perturbs, and says nothing of what follows from it."""

    name = "forgetful"
    perturbs = True

    def server_round(self, context: ServerContext) -> AttemptMachine:
        return PerturbedServer(context)

    def participant_round(self, context: ParticipantContext) -> AttemptMachine:
        return PerturbedClient(context)


def test_a_scheme_that_perturbs_is_refused_while_it_would_give_the_true_model_away() -> None:
    parameters = Table.build("perturbed").federation.parameters
    with pytest.raises(ParameterError) as refused:
        require_workable(Forgetful(), parameters)
    assert [text for text in refused.value.problems if "announces_next_hash" in text]
    assert [text for text in refused.value.problems if "parting_model" in text]


@pytest.mark.parametrize("at_server", [True, False])
def test_a_scheme_that_perturbs_refuses_a_machine_without_equipment(at_server: bool) -> None:
    with pytest.raises(LocalProtocolError):
        Forgetful().require_equipment(None, at_server=at_server)


def test_equipment_that_lacks_a_part_is_refused_at_the_start_and_not_at_the_farewell() -> None:
    class Half:
        terms: dict[str, int] = {}
        asks = False

        def perturb(self) -> None: ...

    with pytest.raises(LocalProtocolError, match="protected_model"):
        server_equipment(Half())


def test_a_completed_run_does_not_end_without_a_model_for_its_participants() -> None:
    @register
    class Stingy(Masked):
        name = "stingy"

        def parting_model(
            self, model: Model, equipment: object | None, random: RandomBytes, *, completed: bool
        ) -> Model | None:
            return None

    table = Table.build("stingy", 3, rounds=1)
    table.start()
    with pytest.raises(LocalProtocolError, match="stingy"):
        table.run()


@pytest.mark.parametrize("method", ["server_round", "participant_round"])
def test_a_scheme_that_makes_no_machine_for_an_attempt_is_named(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Masked, method, lambda *_: None)
    table = Table.build("masked", 3, rounds=1)
    table.start()
    with refusal(LocalProtocolError, "masked", "None", "AttemptMachine"):
        table.run()


def test_a_name_finds_the_scheme_of_its_own_module_and_never_a_built_in_one() -> None:
    @register
    class masked(Plain):  # noqa: N801 - named to be mistaken for the built-in scheme
        name = "my-open"

    home = f"{masked.__module__}:{masked.__qualname__}"
    assert type(find_scheme(home)) is masked
    assert type(find_scheme("masked")) is Masked
    for stranger in ("os:plain", f"{masked.__module__}:plain", ":plain"):
        with pytest.raises(ParameterError):
            find_scheme(stranger)
