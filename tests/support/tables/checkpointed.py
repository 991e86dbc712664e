"""A table that goes on from the disks of another one, under the organiser's next roster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tests.support.tables.lying_table import participant
from veilsum.protocol.agreed.anchor import Anchor
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.identifiers import PartyId
from veilsum.roles.federation.anchoring import checkpoint_anchor
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.simulations.testing.table import Table


def after_checkpoint(table: Table, holder: str, *, without: Iterable[str] = ()) -> Table:
    """All parties but those evicted start anew from their disks; the organiser vouches for what the holder holds."""
    federation, gone = table.federation, set(without)
    chain = participant(table, holder)._chain
    anchor = federation.roster.anchor
    assert chain is not None
    assert anchor is not None
    voters = tuple(name for name in table.participants if name not in gone)
    moved = checkpoint_anchor(anchor, chain.state.position, chain.state.hash, voters, len(voters))
    return under_roster(table, moved, gone)


def under_roster(table: Table, anchor: Anchor, gone: Iterable[str] = ()) -> Table:
    federation, evicted = table.federation, set(gone)
    kept = {name: one for name, one in federation.identities.items() if name not in evicted}
    roster = Roster(federation.roster.version + 1, tuple(one.public for one in kept.values()), anchor)
    following = Table(
        replace(
            federation,
            identities=kept,
            rules=replace(federation.rules, roster=roster),
            entropy=SeededEntropy(federation.roster.version + 100),
        )
    )
    for name in following.machines:
        following.disks[PartyId(name)] = table.disks[PartyId(name)].copy()
        following.crash(name)
    for name in list(following.machines):
        following.restart(name)
    return following
