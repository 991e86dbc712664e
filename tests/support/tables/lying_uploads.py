"""Uploads of a participant that writes other words than it trained, with a tag that fits them or with the old one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.tables.lying_table import attempt_of, input_of
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.secure_sum.verification import TAG_WORDS, AttemptTags
from veilsum.protocol.wire.messages import Message
from veilsum.simulations.testing.table import Table, Tamper
from veilsum.simulations.testing.trace import InFlight


def tags_of(table: Table, name: str) -> AttemptTags:
    """Tags with the key of the attempt that a party is in: every member of the session has it."""
    machine: Any = attempt_of(table, name)
    known: AttemptTags = getattr(machine, "_tags", None) or machine._sum._tags
    return AttemptTags(table.federation.parameters.encoding, known.key, machine._context.session.members)


def with_other_word(
    table: Table, name: str, upload: MaskedInput, place: int, amount: int, *, tagged: bool
) -> MaskedInput:
    """The upload with `amount` added to one word of the update; `tagged`: its tag says so, too.

    Masks are added, so that its author need not take them off.
    """
    party, encoding = PartyId(name), table.federation.parameters.encoding
    trained = input_of(table, party, upload.stamp.round)
    words = encoding.encode(trained.payload, trained.samples)
    lied = words.copy()
    encoding.ring.signed(lied)[place] += amount
    vector = upload.vector.copy()
    vector[:-TAG_WORDS] += lied - words
    if tagged:
        true, false = (tags_of(table, name).limbs_for(party, one) for one in (words, lied))
        vector[-TAG_WORDS:] += false - true
    return replace(upload, vector=vector)


def lying_uploader(
    table: Table, name: str, place: int, amount: int, *, tagged: bool, in_round: int = 0
) -> Tamper:
    """Every upload of this party in this round has another word than it trained."""

    def tamper(flight: InFlight) -> Message | None:
        message = flight.message
        lies = isinstance(message, MaskedInput) and flight.sender == name and message.stamp.round == in_round
        if not lies:
            return message
        assert isinstance(message, MaskedInput)
        return with_other_word(table, name, message, place, amount, tagged=tagged)

    return tamper
