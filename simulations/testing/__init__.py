"""Property tests for protocols: a table of n machines, hypothesis strategies, invariants (see specs/testing.md).

What users need is exported here; `veilsum` itself exports the names that are needed most.
"""

from __future__ import annotations

from veilsum.simulations.run.invariants import InvariantViolated
from veilsum.simulations.testing.federation import MarkedLearner, TableFederation
from veilsum.simulations.testing.invariants import check_invariants
from veilsum.simulations.testing.lying import ToldLie, tell_lie
from veilsum.simulations.testing.message_strategies import message_strategy, party_ids, record_strategy
from veilsum.simulations.testing.perturbation import TableLearner
from veilsum.simulations.testing.reference import Reference
from veilsum.simulations.testing.stateful import RoundsUnderFaults, rounds_under_faults
from veilsum.simulations.testing.strategies import (
    Action,
    Step,
    graph_policies,
    party_names,
    payload_vectors,
    play,
    schedules,
    table_settings,
)
from veilsum.simulations.testing.table import Stuck, Table, TableJob, Tamper
from veilsum.simulations.testing.trace import InFlight, Refusal, Trace

__all__ = [
    "Action",
    "InFlight",
    "InvariantViolated",
    "MarkedLearner",
    "Reference",
    "Refusal",
    "RoundsUnderFaults",
    "Step",
    "Stuck",
    "Table",
    "TableFederation",
    "TableJob",
    "TableLearner",
    "Tamper",
    "ToldLie",
    "Trace",
    "check_invariants",
    "graph_policies",
    "message_strategy",
    "party_ids",
    "party_names",
    "payload_vectors",
    "play",
    "record_strategy",
    "rounds_under_faults",
    "schedules",
    "table_settings",
    "tell_lie",
]
