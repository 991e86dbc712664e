"""Sessions and rounds that a lying server opens by itself at a table of machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.tables.lying_table import messages, say
from veilsum.protocol.chain.votes import Certificate
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.session import (
    HELLO_DOMAIN,
    Hello,
    Invitation,
    RoundOpened,
    SessionOpened,
    SessionTerms,
)
from veilsum.protocol.secure_sum.group_key import GroupKeyDealt, GroupKeyDelivered
from veilsum.protocol.wire.messages import Stamp
from veilsum.simulations.testing.federation import TableFederation
from veilsum.simulations.testing.table import Table


def proposed_session(
    table: Table, number: int, *names: str, position: int = 0, certificate: Certificate | None = None
) -> SessionOpened:
    """What a lying server would tell these parties to open a session with them alone; all have said hello."""
    invitation = bytes([number]) * 32
    for name in names:
        assert say(table, "server", name, Invitation(Stamp(), invitation)) is None
    hellos = {
        flight.sender: flight.message.hello
        for flight in table.trace.sent
        if isinstance(flight.message, Hello) and flight.message.invitation == invitation
    }
    terms = SessionTerms(table.federation.roster, table.federation.parameters, invitation)
    session = terms.open(hellos, position)
    return SessionOpened(Stamp(session.id, position, number), session.hellos, certificate)


def session_of(
    table: Table, number: int, *names: str, position: int = 0, certificate: Certificate | None = None
) -> Stamp:
    """A lying server opens a session with these parties alone; returns the stamp of a round in it."""
    opened = proposed_session(table, number, *names, position=position, certificate=certificate)
    for name in names:
        assert say(table, "server", name, opened) is None
    table.deliver_all()
    pass_group_key(table, opened.stamp)
    return opened.stamp


def pass_group_key(table: Table, stamp: Stamp) -> None:
    """What the dealer of a session has for the others, if there is one: the server's machine knows no such session."""
    for dealt in messages(table, GroupKeyDealt):
        if dealt.stamp.session == stamp.session:
            for name, box in dealt.boxes.items():
                assert say(table, "server", name, GroupKeyDelivered(dealt.stamp, box)) is None


def opening(table: Table, stamp: Stamp) -> RoundOpened:
    """Round 0 as the server of this scheme opens it."""
    honest = messages(table, RoundOpened)[0]
    assert isinstance(honest, RoundOpened)
    return replace(honest, stamp=replace(honest.stamp, session=stamp.session, attempt=stamp.attempt))


def signed_hello(
    federation: TableFederation, name: str, hello: Hello, *, signer: Identity | None = None, **changes: Any
) -> Hello:
    """A hello with other words in it, signed by the party itself, or by someone who would be it."""
    terms = SessionTerms(federation.roster, federation.parameters, hello.invitation)
    record = replace(hello.hello, **changes)
    signing = (signer or federation.identities[PartyId(name)]).signing
    digest = terms.hello_digest(PartyId(name), record)
    return replace(hello, hello=replace(record, signature=signing.sign(HELLO_DOMAIN, digest)))
