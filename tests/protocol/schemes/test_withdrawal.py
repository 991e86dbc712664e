"""A party that withdraws, for others' sake or since its own values do not fit, costs nobody a true result."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.refusals import require_mentions
from tests.support.tables.lying_table import (
    exact_model,
    fix_input,
    lying_table,
    messages,
    told,
)
from veilsum.protocol.errors import AbortReason, EncodingError, WeightNotAgreed
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RunFailed
from veilsum.protocol.machines.participation import RESTORE_SERVER
from veilsum.protocol.machines.session import Hello, Withdrawn
from veilsum.protocol.numbers.model import LocalResult
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message
from veilsum.simulations.testing.table import Table
from veilsum.simulations.testing.trace import InFlight

SECURE = ("masked", "mpc", "ampc")
REASON = AbortReason


def result_of(table: Table) -> bytes:
    holder = SERVER if table.federation.scheme.server_holds_model else table.participants[1]
    model = told(table, holder).commits[0].model
    assert model is not None
    return model.tobytes()


@pytest.mark.parametrize("scheme", ("plain", "perturbed", "bilateral", *SECURE))
@pytest.mark.parametrize("who", ["p0", "p2"])
def test_a_withdrawal_that_leaves_too_few_ends_the_attempt_whatever_it_comes_before(
    scheme: str, who: str
) -> None:
    """Three of at least three; in place of each of its messages once: the server never stumbles over what follows."""
    for number in range(10):
        table = lying_table(scheme, 3, max_attempts=1, rounds=1)
        sent: list[Message] = []

        def tamper(flight: InFlight, number: int = number, sent: list[Message] = sent) -> Message | None:
            if flight.sender != who or flight.receiver != SERVER or isinstance(flight.message, Hello):
                return flight.message
            sent.append(flight.message)
            return (
                Withdrawn(flight.message.stamp, "EncodingError")
                if len(sent) == number + 1
                else flight.message
            )

        table.tamper = tamper
        table.run()
        if len(sent) <= number:
            return
        assert told(table, SERVER).ending is not None
    raise AssertionError("more messages than were replaced")


BAD_INPUTS = {
    "no samples": LocalResult(np.zeros(6, dtype=np.float32), 0),
    "too many samples": LocalResult(np.zeros(6, dtype=np.float32), 1001),
    "not a number": LocalResult(np.array([0, 0, np.nan, 0, 0, 0], dtype=np.float32), 5),
    "infinite": LocalResult(np.array([0, 0, np.inf, 0, 0, 0], dtype=np.float32), 5),
    "beyond the clip": LocalResult(np.array([0, 0, 8.5, 0, 0, 0], dtype=np.float32), 5),
}


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("problem", BAD_INPUTS)
def test_a_party_whose_own_values_do_not_fit_withdraws_and_the_others_finish(
    scheme: str, problem: str
) -> None:
    table = lying_table(scheme, 5)
    fix_input(table, PartyId("p4"), 0, BAD_INPUTS[problem])
    table.run()
    (failure,) = told(table, PartyId("p4")).failures
    assert failure.reason is REASON.WITHDRAWN
    about_count = "samples" in problem
    assert (
        messages(table, Withdrawn, "p4")[0].reason == (WeightNotAgreed if about_count else EncodingError).told
    )
    assert not messages(table, MaskedInput, "p4")
    assert told(table, SERVER).commits[0].members == tuple(table.participants[:4])
    assert result_of(table) == exact_model(table, table.participants[:4])


@pytest.mark.parametrize("scheme", SECURE)
def test_a_run_that_withdrawals_end_says_everywhere_who_withdrew_and_why_and_no_count(scheme: str) -> None:
    """All have more samples than was agreed: nobody hears first that parties are missing, nor blames the server."""
    table = lying_table(scheme, 4, max_attempts=1)
    for name in table.participants:
        fix_input(table, name, 0, LocalResult(np.zeros(6, dtype=np.float32), 1001))
    table.run()
    for name in (SERVER, *table.participants):
        ending = told(table, name).ending
        assert isinstance(ending, RunFailed)
        assert (ending.reason, ending.culprit) == (REASON.WITHDRAWN, "")
        require_mentions(ending.detail, *table.participants, "withdrew", "max_weight")
        assert "1001" not in ending.detail


def test_the_advice_in_a_withdrawal_arrives_whole(scheme: str = "perturbed") -> None:
    """What a party says of a server that is behind, with rounds of many digits, at the server and in its farewell."""
    told_by = f"the server is behind: {10**9} rounds are done here, and round {10**9} begins again; {RESTORE_SERVER}"
    table = lying_table(scheme, 3, max_attempts=1, rounds=1)

    def tamper(flight: InFlight) -> Message | None:
        if flight.receiver != SERVER or isinstance(flight.message, Hello):
            return flight.message
        return Withdrawn(flight.message.stamp, told_by)

    table.tamper = tamper
    table.run()
    for name in (SERVER, *table.participants):
        ending = told(table, name).ending
        assert isinstance(ending, RunFailed)
        assert told_by in ending.detail
