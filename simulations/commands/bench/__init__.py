"""Cost against its limits: the physical one (memory, the cipher) or the nearest peer's."""

from __future__ import annotations

from veilsum.roles.cli.table import Command

COMMANDS = (
    Command(
        "core",
        "Measure",
        "mask stream, encoding, shares, seals, wire",
        "veilsum.simulations.commands.bench.core",
    ),
    Command(
        "rounds",
        "Measure",
        "one whole round of a scheme: CPU of each role, bytes, memory",
        "veilsum.simulations.commands.bench.rounds",
    ),
    Command(
        "mqtt",
        "Measure",
        "sealed transfer over a broker against a bare publisher; a launched round",
        "veilsum.simulations.commands.bench.mqtt",
    ),
    Command(
        "launch",
        "Measure",
        "starting a federation as processes: seconds, processor time, memory",
        "veilsum.simulations.commands.bench.launch",
    ),
    Command(
        "perturbed",
        "Measure",
        "training on a perturbed model: client, server and upload over plain",
        "veilsum.simulations.commands.bench.perturbed",
    ),
)
