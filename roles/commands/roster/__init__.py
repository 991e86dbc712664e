"""Who belongs to a federation. Changing it takes the organiser's key."""

from __future__ import annotations

from veilsum.roles.cli.table import Command

COMMANDS = (
    Command("show", "Look", "who is enrolled, with fingerprints", "veilsum.roles.commands.roster.show"),
    Command("pin", "Look", "trust an organiser, as a party", "veilsum.roles.commands.roster.pin"),
    Command("add", "Organise", "enrol a party by its public keys", "veilsum.roles.commands.roster.add"),
    Command("evict", "Organise", "take a party off the roster", "veilsum.roles.commands.roster.evict"),
    Command(
        "observer",
        "Organise",
        "let an observer in, or shut one out",
        "veilsum.roles.commands.roster.observer",
    ),
    Command("sign", "Organise", "sign changed settings", "veilsum.roles.commands.roster.sign"),
    Command(
        "checkpoint",
        "Organise",
        "let the chain of models go on from a position",
        "veilsum.roles.commands.roster.checkpoint",
    ),
)
