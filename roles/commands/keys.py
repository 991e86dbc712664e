"""Make the keys of a party, on the machine that uses them."""

from __future__ import annotations

from veilsum.roles.commandtable import Command

COMMANDS = (Command("new", "Keys", "new keys and a new broker password", "veilsum.roles.commands.keys_new"),)
