"""Attack what each party really saw, and say in numbers and pictures what leaks."""

from __future__ import annotations

from veilsum.roles.cli.table import Command

COMMANDS = (
    Command("list", "Look", "attacks, adversaries, scales", "veilsum.simulations.commands.audit.list"),
    Command("run", "Attack", "one attack on one adversary's view", "veilsum.simulations.commands.audit.run"),
    Command(
        "ppc", "Attack", "accuracy against leakage of defences", "veilsum.simulations.commands.audit.ppc"
    ),
    Command("all", "Attack", "every scheme, adversary and defence", "veilsum.simulations.commands.audit.all"),
)
