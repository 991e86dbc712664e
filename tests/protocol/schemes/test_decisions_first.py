"""What must never be taken back is decided before it is said: the durable decision stands before the message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from veilsum.protocol.agreed.parameters import Recovery
from veilsum.protocol.agreed.threat import Threat
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.decisions import Decision, RoundSpent, UpdateGiven, VoteCast
from veilsum.protocol.machines.events import DecisionMade, Event, Send
from veilsum.protocol.schemes.ampc.messages import ResultDigest, SeedsComplete
from veilsum.protocol.secure_sum.certifying import SumVote
from veilsum.protocol.secure_sum.shares import ReleasedShares
from veilsum.protocol.secure_sum.survivors import SurvivorList, SurvivorProof
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message
from veilsum.roles.process.machines import Machine
from veilsum.roles.process.pump import Action, Pump
from veilsum.simulations.testing.table import Table

SECURE = ("masked", "bilateral", "mpc", "ampc")

DUE = {
    MaskedInput: UpdateGiven,
    ReleasedShares: RoundSpent,
    ResultDigest: VoteCast,
    SumVote: VoteCast,
}
"""What a participant says, and the decision that must be on disk by then."""


class Watched:
    """A table, and every list of events that one of its machines returned, as its driver gets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._returned: list[tuple[Machine, list[Event]]] = []
        drain = Pump.drain

        def watched(pump: Pump, events: Iterable[Event]) -> Iterator[Action]:
            self._returned.append((pump.machine, list(events)))
            return drain(pump, self._returned[-1][1])

        monkeypatch.setattr(Pump, "drain", watched)

    def run(self, table: Table) -> None:
        self._names = {id(machine): name for name, machine in table.machines.items()}
        table.start()
        table.run()

    def said(self, kind: type[Message]) -> Iterator[tuple[PartyId, Message, list[Decision]]]:
        """Every such message, with the decisions that stand before it in the same list of events."""
        for machine, events in self._returned:
            for place, event in enumerate(events):
                if isinstance(event, Send) and isinstance(event.message, kind):
                    before = [one.decision for one in events[:place] if isinstance(one, DecisionMade)]
                    yield self._names[id(machine)], event.message, before


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def require_decided(table: Watched, kind: type[Message], due: type[Decision]) -> int:
    """How often it was said; each time after the decision about this very attempt."""
    count = 0
    for name, message, before in table.said(kind):
        stamp = message.stamp
        decided = [(one.round, one.attempt) for one in before if isinstance(one, due)]
        assert (stamp.round, stamp.attempt) in decided, f"{name} said {kind.__name__} undecided"
        count += 1
    return count


@pytest.mark.parametrize("threat", Threat)
@pytest.mark.parametrize("scheme", SECURE)
def test_uploads_releases_and_results_are_decided_before_they_are_said(
    watched: Watched, scheme: str, threat: Threat
) -> None:
    table = Table.build(scheme, 5, rounds=1, threat=threat)
    watched.run(table)
    said = {kind: require_decided(watched, kind, due) for kind, due in DUE.items()}
    assert said[MaskedInput] == said[ReleasedShares] == 5
    assert (said[ResultDigest] > 0) == (scheme in ("mpc", "ampc"))
    assert (said[SumVote] > 0) == (scheme == "masked")


@pytest.mark.parametrize("scheme", SECURE)
def test_without_recovery_an_upload_spends_the_round_before_it_leaves(watched: Watched, scheme: str) -> None:
    table = Table.build(scheme, 4, rounds=1, recovery=Recovery.NONE)
    watched.run(table)
    assert require_decided(watched, MaskedInput, UpdateGiven) == 4
    assert require_decided(watched, MaskedInput, RoundSpent) == 4


@pytest.mark.parametrize("threat", Threat)
@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("lost", [False, True])
def test_a_server_settles_on_one_list_before_it_asks_for_shares(
    watched: Watched, scheme: str, threat: Threat, lost: bool
) -> None:
    table = Table.build(scheme, 6, rounds=1, threat=threat)
    if lost:
        table.crash_before("p1", MaskedInput)
    watched.run(table)
    votes = threat is Threat.LYING or scheme in ("mpc", "ampc")
    reveals = lost and scheme in ("mpc", "ampc")
    asking: type[Message] = SeedsComplete if reveals else SurvivorProof if votes else SurvivorList
    assert require_decided(watched, asking, RoundSpent) >= 5
    assert {name for name, _, _ in watched.said(asking)} == {SERVER}
