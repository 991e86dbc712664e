"""Participants that lie about something else than their update: what they hold of others, and how far they are.

Implements specs/lies.md, section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.session import HELLO_DOMAIN, Hello, SessionTerms
from veilsum.protocol.secure_sum.shares import ReleasedShares
from veilsum.protocol.wire.fields import DEFAULT_MAX_INTEGER
from veilsum.protocol.wire.messages import Message
from veilsum.simulations.lies.lie import Lie
from veilsum.simulations.lies.uploads import PARTICIPANT


class FalseShare(Lie):
    name = "client:share"
    does = "releases other shares of the others' secrets than it was dealt"
    noticed_as = "BAD_SHARE at the server, who names the liar; the others rebuild every sum without it"
    by = (PARTICIPANT,)
    about_lists = True

    def instead_of(self, sender: PartyId, receiver: PartyId, message: Message) -> Message | None:
        if not isinstance(message, ReleasedShares):
            return message
        return ReleasedShares(message.stamp, _changed(message.self_masks), _changed(message.masking_keys))


def _changed(shares: Mapping[PartyId, bytes]) -> dict[PartyId, bytes]:
    return {dealer: bytes([share[0] ^ 1]) + share[1:] for dealer, share in shares.items()}


class FalsePosition(Lie):
    name = "peer:rounds-done"
    does = "says in every hello that it has done as many rounds as a number can hold"
    noticed_as = "BAD_CERTIFICATE at the server, who leaves the liar out; the others go on"
    by = ("peer",)
    to_peers = True

    def instead_of(self, sender: PartyId, receiver: PartyId, message: Message) -> Message | None:
        if not isinstance(message, Hello):
            return message
        rules, me = self.liars.rules, self.liars.identities[sender]
        terms = SessionTerms(rules.roster, rules.parameters, message.invitation)
        claim = replace(message.hello, rounds_done=DEFAULT_MAX_INTEGER)
        signature = me.signing.sign(HELLO_DOMAIN, terms.hello_digest(sender, claim))
        return replace(message, hello=replace(claim, signature=signature))
