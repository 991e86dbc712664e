"""An engine decides where parties train, and nothing else: the model is the same to the byte."""

from __future__ import annotations

import pytest

from tests.examples.own_engine import CountingThreads
from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.contract import LocalUpdate
from veilsum.simulations.run.engine import InlineEngine, Training
from veilsum.simulations.run.simulate import simulate


def small(scheme: str) -> FederationConfig:
    return FederationConfig(scheme=scheme, task="vectors:6", rounds=2, seed=3)


@pytest.mark.parametrize("scheme", ["plain", "masked", "ampc"])
@pytest.mark.parametrize("faults", [None, "delay=0.2,duplicate=0.2"])
def test_threads_give_the_model_that_inline_training_gives(scheme: str, faults: str | None) -> None:
    config = small(scheme)
    inline, engine = simulate(config, faults=faults), CountingThreads(2)
    threaded = simulate(config, faults=faults, engine=engine)
    assert threaded.model.tobytes() == inline.model.tobytes()
    assert [one.members for one in threaded.rounds] == [one.members for one in inline.rounds]
    assert set(engine.trained) == set(config.parties)


class Refusing(InlineEngine):
    """Has no room for one party."""

    def submit(self, training: Training) -> LocalUpdate:
        if training.party == "p1":
            raise LocalProtocolError("no room")
        return super().submit(training)


def test_a_party_whose_training_fails_withdraws_and_the_others_go_on() -> None:
    config = small("masked")
    result = simulate(config, engine=Refusing())
    others = tuple(name for name in config.parties if name != "p1")
    assert [one.members for one in result.rounds] == [others, others]


class Resultless(InlineEngine):
    """Trains, and returns nothing."""

    def submit(self, training: Training) -> LocalUpdate:
        super().submit(training)
        return None  # type: ignore[return-value]  # what a careless author does


def test_an_engine_that_returns_no_update_is_refused_by_its_name() -> None:
    with pytest.raises(LocalProtocolError) as caught:
        simulate(small("masked"), engine=Resultless())
    assert "Resultless.submit" in str(caught.value)
