"""What one round costs: all roles in one process, one after the other, CPU time of each on its own account.

The clock runs from the opening of the round until everyone has committed it. Opening the session (once per
membership) is `setup`; creating identities, making inputs and checking the result are not counted. Every
message is signed, encoded, hashed on both sides and decoded as between computers; only the wire is missing.
Messages to the server are delivered first, so that an upload is added up before the next one is made:
memory is that of a server that keeps up.
"""

from __future__ import annotations

import itertools
import math
import resource
import statistics
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import Event, RoundCommitted, RunFailed, RunFinished
from veilsum.protocol.schemes.masked import Masked
from veilsum.protocol.wire.messages import Message
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.simulations.benchmarks.measuring import Figure
from veilsum.simulations.benchmarks.verification import added_time
from veilsum.simulations.run.faults import losses
from veilsum.simulations.run.federation import Federation
from veilsum.simulations.run.record import Recorder
from veilsum.simulations.run.simulate import SimulationResult
from veilsum.simulations.run.simulation import Node, Simulation
from veilsum.transport.memory.network import Delivery, NetworkEvent, TimerDue

VERIFIED_LIMIT, VERIFIED_AT = 1.06, (Masked.name, 10, 1_000_000, 32, 0)
"""The most that verification may cost, and where: scheme, parties, values, bits, dropouts."""


class ServerFirstNetwork:
    """Instant delivery, messages to the server before all others; timers only when nothing is in flight."""

    def __init__(self) -> None:
        self._now = 0.0
        self._to_server: deque[Delivery] = deque()
        self._to_others: deque[Delivery] = deque()
        self._timers: list[TimerDue] = []

    def send(self, now: float, sender: str, receiver: str, payload: object) -> None:
        queue = self._to_server if receiver == SERVER else self._to_others
        queue.append(Delivery(now, sender, receiver, payload))

    def set_timer(self, at: float, party: str, token: object = None) -> None:
        self._timers.append(TimerDue(at, party, token))

    def next_event_time(self) -> float | None:
        if self._to_server or self._to_others:
            return self._now
        return min((timer.time for timer in self._timers), default=None)

    def pop_due(self, now: float) -> list[NetworkEvent]:
        self._now = now
        for queue in (self._to_server, self._to_others):
            if queue:
                return [queue.popleft()]
        due: list[NetworkEvent] = [timer for timer in self._timers if timer.time <= now]
        self._timers = [timer for timer in self._timers if timer.time > now]
        return due


SETUP_KINDS = ("start", "session.", "ampc.seeds-for", "ampc.seeds-relayed", "ampc.model")
"""Work on these belongs to the session, which is opened once per membership, and not to the round."""


class UntilCommitted(Recorder):
    """Ends the simulation when everyone who is alive has committed the round."""

    simulation: Simulation

    def __post_init__(self) -> None:
        super().__post_init__()
        self._committed: set[PartyId] = set()

    def noted(self, now: float, party: PartyId, event: Event) -> None:
        super().noted(now, party, event)
        if isinstance(event, RoundCommitted):
            self._committed.add(party)

    @property
    def seen_enough(self) -> bool:
        return self._committed >= {one.name for one in self.simulation.nodes.values() if one.alive}


def round_cpu_s(node: Node) -> float:
    return sum(spent for kind, spent in node.cpu_by_kind.items() if not kind.startswith(SETUP_KINDS))


@dataclass(frozen=True)
class RoundCost:
    scheme: str
    parties: int
    dimension: int
    bits: int
    dropped: int
    graph: str
    client_cpu_s: float
    server_cpu_s: float
    total_cpu_s: float
    setup_cpu_s: float
    bytes_up_over_plain: float
    peak_rss_mib: float
    max_abs_error: float
    verified_over_unverified: float
    own_step_over_given: float

    def row(self) -> tuple[str, ...]:
        return (
            str(self.parties),
            str(self.dimension),
            str(self.dropped),
            self.graph,
            f"{self.client_cpu_s:.4f}",
            f"{self.server_cpu_s:.3f}",
            f"{self.total_cpu_s:.3f}",
            f"{self.setup_cpu_s:.3f}",
            f"{self.bytes_up_over_plain:.4f}",
            f"{self.peak_rss_mib:.0f}",
            f"{self.max_abs_error:.1e}",
            f"{self.verified_over_unverified:.3f}",
            f"{self.own_step_over_given:.3f}",
        )

    @property
    def figure(self) -> Figure:
        """What verified sums and votes cost, with its limit where there is one."""
        limited = (self.scheme, self.parties, self.dimension, self.bits, self.dropped) == VERIFIED_AT
        return Figure(
            "verified_over_unverified",
            self.verified_over_unverified,
            "a round with tags, checks and votes over one without",
            at_most=VERIFIED_LIMIT if limited else None,
        )

    def figures(self) -> dict[str, Any]:
        found = {**vars(self)}
        if self.figure.met is not None:
            found["verified_limit_met"] = self.figure.met
        return found


def _why(ended: RunFinished | RunFailed | None) -> str:
    if isinstance(ended, RunFailed):
        return f"{ended.reason.value}: {ended.detail}" if ended.detail else ended.reason.value
    return "the server came to no end"


def measure_round(config: FederationConfig, dropped: int) -> RoundCost:
    """One round of a federation of `vectors:D`."""
    federation = Federation.build(config)
    lost: dict[PartyId, type[Message]] = losses(config, f"{dropped}@upload") if dropped else {}
    recorder = UntilCommitted(federation)
    simulation = Simulation(federation, lost=lost, observer=recorder, network=ServerFirstNetwork())
    recorder.simulation = simulation
    with added_time() as added:
        simulation.run()
    if not recorder.rounds:
        raise LocalProtocolError(f"the round did not commit: {_why(simulation.server.ended)}")
    result = SimulationResult(federation, recorder, simulation, wall_s=0.0)
    up = result.bytes_up_over_plain
    assert up is not None
    participants = [round_cpu_s(node) for node in simulation.participants if node.alive]
    total = sum(map(round_cpu_s, simulation.nodes.values()))
    return RoundCost(
        scheme=config.scheme,
        parties=len(config.parties),
        dimension=federation.parameters.dimension,
        bits=config.bits,
        dropped=dropped,
        graph=federation.parameters.graph.describe(),
        client_cpu_s=statistics.median(participants),
        server_cpu_s=round_cpu_s(simulation.server),
        total_cpu_s=total,
        setup_cpu_s=result.protocol_cpu_s - total,
        bytes_up_over_plain=up,
        peak_rss_mib=peak_rss_mib(),
        max_abs_error=recorder.rounds[-1].max_abs_error,
        verified_over_unverified=added.verified_over_unverified(total),
        own_step_over_given=added.own_step_over_given(total),
    )


def peak_rss_mib() -> float:
    """The most memory this process has had, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def parse_drop(text: str, parties: int) -> int:
    """`3` is three parties, `10%` a tenth of them."""
    number = text.removesuffix("%")
    if not number.isdecimal():
        raise ParameterError([f"drop {text!r}: write a number of parties, or a share such as 10%"])
    return parties * int(number) // 100 if text.endswith("%") else int(number)


def growth(costs: Sequence[RoundCost]) -> list[float]:
    """For each step of a series, the growth of the cost over that of n log n; 1 or less is as it should be."""
    return [
        (later.total_cpu_s / earlier.total_cpu_s)
        / (later.parties * math.log(later.parties) / (earlier.parties * math.log(earlier.parties)))
        for earlier, later in itertools.pairwise(costs)
    ]
