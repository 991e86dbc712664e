"""A round as processes over a real broker, beside the same round in memory, and where the time goes.

The federation is made in a temporary folder and launched as a person would: broker with TLS, server and
peers as processes on this machine, so that all of them share its cores. Times come from the server's own
log.
"""

from __future__ import annotations

import asyncio
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.broker.ports import free_port
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.values import party_names
from veilsum.roles.federation.enrolment import create_federation
from veilsum.roles.federation.folder import load_federation
from veilsum.roles.launch.outcome import Outcome
from veilsum.roles.launch.processes import Launch
from veilsum.simulations.run.simulate import simulate


def run(parties: int, dimension: int, rounds: int) -> dict[str, Any]:
    """Seconds per round over MQTT and in memory, and the parts of the launched run."""
    config = FederationConfig(
        scheme="ampc",
        parties=party_names(parties),
        rounds=rounds,
        task=f"vectors:{dimension}",
        broker_port=free_port(),
    )
    in_memory = simulate(config, verify=False)
    with tempfile.TemporaryDirectory(prefix="veilsum-bench-") as folder:
        create_federation(Path(folder) / "fed", config)
        outcome = asyncio.run(Launch(load_federation(Path(folder) / "fed")).run())
        if outcome.exit_code != 0:
            raise LocalProtocolError(
                "the launched federation did not finish: see its logs with `veilsum launch`"
            )
        parts = _parts(outcome)
    memory_round_s = in_memory.wall_s / rounds
    return {
        "parties": parties,
        "dimension": dimension,
        "rounds": rounds,
        **parts,
        "memory_round_s": memory_round_s,
        "launch_round_over_memory": parts["launch_round_s"] / memory_round_s,
    }


def _parts(outcome: Outcome) -> dict[str, float]:
    """Start-up of the processes, opening and seed exchange of the session, and the mean round, in seconds."""
    sessions, begun, committed = (
        [_time(fact) for fact in outcome.facts(name, "server")]
        for name in ("session_began", "round_began", "round_committed")
    )
    rounds = [end - start for start, end in zip(begun, committed, strict=True)]
    launched = committed[-1] - outcome.wall_s
    return {
        "start_s": max(0.0, sessions[0] - launched),
        "session_s": begun[0] - sessions[0],
        "launch_round_s": sum(rounds) / len(rounds),
    }


def _time(fact: Any) -> float:
    return datetime.fromisoformat(str(fact["at"])).timestamp()
