"""Make the keys of a party, on the machine that uses them."""

from __future__ import annotations

from veilsum.roles.cli.table import Command

COMMANDS = (
    Command("new", "Keys", "new keys and a new broker password", "veilsum.roles.commands.prepare.keys_new"),
    Command(
        "first-model",
        "Keys",
        "state which model the party begins with",
        "veilsum.roles.commands.prepare.keys_first_model",
    ),
    Command(
        "sign-login",
        "Keys",
        "sign the broker login of keys that an earlier version made",
        "veilsum.roles.commands.prepare.keys_sign_login",
    ),
)
