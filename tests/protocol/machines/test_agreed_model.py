"""A scheme that commits what is no model of the federation ends the run where it happens, with its reason."""

from __future__ import annotations

import numpy as np
import pytest

from tests.examples import open_mean
from tests.support.refusals import require_mentions
from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.schemes import AttemptMachine, Committed, Event, PartyId, ServerContext, handles
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.simulations.run.simulate import simulate


class Shortening(open_mean.Taker):
    """Forgets the last number of the mean."""

    @handles(open_mean.OpenUpdate)
    def take(self, sender: PartyId, update: open_mean.OpenUpdate, now: float) -> list[Event]:
        events = super().take(sender, update, now)
        if isinstance(self.outcome, Committed):
            assert self.outcome.model is not None
            self.outcome = Committed(self.outcome.members, np.ascontiguousarray(self.outcome.model[:-1]))
        return events


def test_a_committed_model_of_another_length_is_a_failure_that_names_scheme_and_lengths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before, the server went on to the end, and every party refused what it was given."""

    def shortened(self: open_mean.OpenMean, context: ServerContext) -> AttemptMachine:
        return Shortening(context)

    monkeypatch.setattr(open_mean.OpenMean, "server_round", shortened)
    config = FederationConfig(
        scheme="tests.examples.open_mean:OpenMean", parties=3, rounds=1, task="vectors:9"
    )
    with pytest.raises(LocalProtocolError) as refusal:
        simulate(config)
    require_mentions(str(refusal.value), "open-mean", 8, 9)
