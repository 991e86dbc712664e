"""Property tests for protocols: a table of n machines, hypothesis strategies, invariants (see specs/testing.md)."""

from __future__ import annotations

from veilsum.simulations.testing.federation import Federation, MarkedLearner
from veilsum.simulations.testing.invariants import InvariantViolated, check_invariants
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
from veilsum.simulations.testing.table import Job, Stuck, Table
from veilsum.simulations.testing.trace import InFlight, Journal, Refusal

__all__ = [
    "Action",
    "Federation",
    "InFlight",
    "InvariantViolated",
    "Job",
    "Journal",
    "MarkedLearner",
    "Reference",
    "Refusal",
    "RoundsUnderFaults",
    "Step",
    "Stuck",
    "Table",
    "TableLearner",
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
]
