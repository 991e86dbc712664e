"""A server that goes back behind some of its parties gains nothing: what they did there they no longer say.

The server and as many colluders as may be let two honest parties go on to the next position, and then go back to the
one before with everybody. Two who are beyond a position and seem to deny its list, and two who lie, are enough that the
list no longer counts; the others would give the same update into a second sum.
"""

from __future__ import annotations

import pytest

from tests.support.tables.lying_table import lying_table, participant, until
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.on_chain import ServerOnChain
from veilsum.protocol.machines.session import Hello, RoundClosed, RoundOpened, SessionOpened
from veilsum.protocol.schemes.masked.round import MaskedRound
from veilsum.protocol.secure_sum.certifying import SumOpened
from veilsum.protocol.secure_sum.group_key import dealer_of
from veilsum.protocol.secure_sum.survivors import SurvivorProof
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message
from veilsum.simulations.testing.table import Table, honest
from veilsum.simulations.testing.trace import InFlight

MOVED_ON = (PartyId("p0"), PartyId("p1"))
RELEASED = PartyId("p2")
UNSEEING = (PartyId("p3"), PartyId("p4"))
COLLUDERS = (PartyId("p5"), PartyId("p6"))


class GoingBack:
    """The first act: a sum of everyone is opened, two go on, and the others never hear of it."""

    def __init__(self, seed: int) -> None:
        self.table: Table = lying_table("masked", 7, rounds=3, seed=seed)
        self.server_disk = self.table.disks[SERVER].copy()
        self.disks_before_the_list = {}
        self.table.tamper = self._withhold

    def _withhold(self, flight: InFlight) -> Message | None:
        message, kept_in_the_dark = flight.message, (*UNSEEING, RELEASED)
        if isinstance(message, MaskedInput) and message.stamp.round == 0:
            self.disks_before_the_list[flight.sender] = self.table.disks[flight.sender].copy()
        if isinstance(message, SurvivorProof | SumOpened) and flight.receiver in UNSEEING:
            return None
        if isinstance(message, RoundClosed) and flight.receiver in kept_in_the_dark:
            return None
        second = isinstance(message, SessionOpened) and message.stamp.round == 1
        return None if second and flight.receiver in kept_in_the_dark else message

    def two_go_on(self) -> bool:
        """Whether the two were let into a round of the next position; not if an honest one is to deal its key."""
        table = self.table
        table.deliver(until(table, SessionOpened, "p0"))
        second = until(table, SessionOpened, "p0").message
        assert isinstance(second, SessionOpened)
        if dealer_of(second.stamp.session, second.hellos) not in (*MOVED_ON, *COLLUDERS):
            return False
        for name in MOVED_ON:
            table.deliver(until(table, RoundOpened, name))
        held = [participant(table, name).rounds_done for name in (*MOVED_ON, RELEASED, *UNSEEING)]
        assert held == [1, 1, 0, 0, 0]
        return True

    def go_back(self) -> None:
        """The second act: server and colluders return to what they were before the list."""
        table = self.table
        table.wire.clear()
        table.tamper = honest
        for name in (SERVER, *COLLUDERS):
            table.crash(name)
            table.disks[name] = (
                self.server_disk if name == SERVER else self.disks_before_the_list[name].copy()
            )
            table.restart(name)


def test_the_update_enters_no_second_sum_because_two_who_went_on_seem_to_deny_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plays = (GoingBack(seed) for seed in range(40))
    play = next(one for one in plays if one.two_go_on())
    opened: list[tuple[PartyId, ...]] = []
    open_sum, admit = MaskedRound._open_sum, ServerOnChain.admit

    def watched(self: MaskedRound) -> object:
        opened.append(self.survivors)
        return open_sum(self)

    def believing_some(self: ServerOnChain, sender: PartyId, hello: Hello) -> None:
        if sender not in MOVED_ON:
            admit(self, sender, hello)

    monkeypatch.setattr(MaskedRound, "_open_sum", watched)
    monkeypatch.setattr(ServerOnChain, "admit", believing_some)
    monkeypatch.setattr(ServerOnChain, "no_quorum", lambda self, hellos: None)
    play.go_back()
    play.table.run()
    assert opened == []
    refusals = [one for one in play.table.trace.refusals if isinstance(one.flight.message, SessionOpened)]
    refused = {one.party for one in refusals if one.error.reason is AbortReason.REPLAY}
    assert {RELEASED, *UNSEEING} <= refused
    assert [participant(play.table, name).rounds_done for name in (*MOVED_ON, RELEASED)] == [1, 1, 0]
