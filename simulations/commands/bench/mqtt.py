"""MQTT: our reliable sealed transfer against a bare publisher, and a launched round against one in memory.

Both transfers cross the same mosquitto on this machine, in turns; the bare publisher uses QoS 1 and chunks
of 1 MiB and checks nothing. Then four peers with a model of a million parameters run as processes and in
memory.

example:
  veilsum bench mqtt --size-mib 40 --json mqtt.json
"""

from __future__ import annotations

import argparse

from veilsum.roles.cli.output import Table, add_json_option, publish


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size-mib", type=int, default=40, metavar="N", help="payload in MiB (default 40)")
    parser.add_argument(
        "--dim",
        type=int,
        default=1_000_000,
        metavar="D",
        help="model of the launched round (default 1000000)",
    )
    parser.add_argument("--skip-launch", action="store_true", help="measure the transfer only")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    from veilsum.simulations.benchmarks import launched, mqtt
    from veilsum.simulations.benchmarks.measuring import Figure
    from veilsum.simulations.benchmarks.plain_broker import plain_broker

    with plain_broker() as address:
        transfer = mqtt.run(args.size_mib, address)
    figures = [
        Figure("goodput_mib_s", transfer["goodput_mib_s"], f"{args.size_mib} MiB, sealed and acknowledged"),
        Figure("raw_mib_s", transfer["raw_mib_s"], "the same bytes, bare QoS 1 publisher, 1 MiB chunks"),
        Figure("goodput_over_raw", transfer["goodput_over_raw"], "median over turns", at_least=0.7),
    ]
    document: dict[str, object] = dict(transfer)
    if not args.skip_launch:
        parts = launched.run(parties=4, dimension=args.dim, rounds=3)
        document |= parts
        figures += [
            Figure("start_s", parts["start_s"], "start of broker, server and four peers"),
            Figure("session_s", parts["session_s"], "session and sealed seeds"),
            Figure("launch_round_s", parts["launch_round_s"], "a round of ampc as processes over MQTT"),
            Figure("memory_round_s", parts["memory_round_s"], "the same round in memory, session included"),
            Figure("launch_round_over_memory", parts["launch_round_over_memory"], ""),
        ]
    table = Table(
        "MQTT on this machine",
        ("figure", "value", "limit", "", "what it is"),
        [figure.row() for figure in figures],
    )
    publish(table.render(), document, args.json)
    return 0
