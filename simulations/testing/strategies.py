"""Hypothesis strategies for whole tables: who sits there, with which parameters and vectors, and what goes wrong.

@given(table_settings("masked"), schedules())
def test_my_property(settings, schedule):
    table = Table.build("masked", **settings)
    table.start()
    play(table, schedule)
    table.run()
    check_invariants(table)

Implements specs/testing.md, section 3.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from veilsum.protocol.agreed.parameters import (
    Bias,
    Differencing,
    Parameters,
    Recovery,
    Rekey,
    Schedule,
    ShareMode,
    Weights,
)
from veilsum.protocol.agreed.threat import HONEST_IN_A_SUM, Threat, tolerated_colluders
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.graphs.graph import Edge
from veilsum.protocol.graphs.policy import GraphKind, GraphPolicy
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.scheme import require_workable
from veilsum.protocol.schemes.registry import find_scheme
from veilsum.roles.config.spelling import named_arguments
from veilsum.simulations.testing.federation import CLIP, MAX_WEIGHT
from veilsum.simulations.testing.message_strategies import party_ids
from veilsum.simulations.testing.table import Table


def party_names(least: int = 3, most: int = 6) -> st.SearchStrategy[tuple[PartyId, ...]]:
    """Sorted, distinct names of participants."""
    names = party_ids().filter(lambda name: name != "server")
    return st.lists(names, min_size=least, max_size=most, unique=True).map(lambda some: tuple(sorted(some)))


@st.composite
def graph_policies(draw: st.DrawFn, parties: Sequence[PartyId]) -> GraphPolicy:
    """Graphs that are connected over all of the parties and safe for decomposition."""
    kinds = [GraphKind.COMPLETE, GraphKind.RING]
    if len(parties) >= 3:
        kinds.append(GraphKind.EDGES)
    if len(parties) > 6:
        kinds.append(GraphKind.K_REGULAR)
    kind = draw(st.sampled_from(kinds))
    if kind is GraphKind.K_REGULAR:
        return GraphPolicy(kind, k=6)
    if kind is not GraphKind.EDGES:
        return GraphPolicy(kind)
    names = sorted(parties)
    circle: set[Edge] = {*pairwise(names), (names[0], names[-1])}
    pairs = [(one, other) for index, one in enumerate(names) for other in names[index + 1 :]]
    return GraphPolicy(kind, edges=tuple(circle | set(draw(st.lists(st.sampled_from(pairs), unique=True)))))


def payload_vectors(dimension: int, clip: float = CLIP) -> st.SearchStrategy[NDArray[np.float32]]:
    """Vectors that a party may train: finite float32 values within the clip."""
    bound = float(np.float32(clip))
    values = st.floats(-bound, bound, width=32)
    return st.lists(values, min_size=dimension, max_size=dimension).map(
        lambda v: np.array(v, dtype=np.float32)
    )


@st.composite
def table_settings(draw: st.DrawFn, scheme: str, *, least: int = 3, most: int = 5) -> dict[str, Any]:
    """Keyword arguments for `Table.build` that the scheme accepts."""
    parties, threat = draw(party_names(least, most)), draw(st.sampled_from(Threat))
    colluders = tolerated_colluders(len(parties), threat)
    settings: dict[str, Any] = {
        "colluders": colluders,
        "min_parties": draw(st.integers(colluders + HONEST_IN_A_SUM, len(parties))),
        "threat": threat,
        "recovery": draw(st.sampled_from(Recovery)),
        "bias": draw(st.sampled_from(Bias)),
        "share_mode": draw(st.sampled_from(ShareMode)),
        "rekey": draw(st.sampled_from(Rekey)),
        "schedule": draw(st.sampled_from(Schedule)),
        "differencing": draw(st.sampled_from(Differencing)),
        "weights": draw(st.sampled_from(Weights)),
    }
    if settings["differencing"] is Differencing.REFUSE and settings["weights"] is Weights.SAMPLES:
        settings["weights"] = Weights.BUCKETED
    bits = draw(st.sampled_from([32, 64]))
    for name, fallback in (("bias", Bias.OWN), ("schedule", Schedule.FEDAVG)):
        if not _workable(scheme, len(parties), bits, settings):
            settings[name] = fallback
    if not _workable(scheme, len(parties), bits, settings):
        bits = 64
    if draw(st.booleans()):
        settings["graph"] = draw(graph_policies(parties))
    return {"parties": parties, "bits": bits, "seed": draw(st.integers(0, 2**16)), **settings}


def _workable(scheme: str, parties: int, bits: int, settings: dict[str, Any]) -> bool:
    try:
        found = find_scheme(scheme)
        most = settings["weights"].of(MAX_WEIGHT)
        encoding = found.plan_numbers(parties, most, CLIP, bits, {})
        require_workable(found, Parameters(scheme, encoding, 1, **settings))
    except ParameterError:
        return False
    return True


class Action(enum.Enum):
    """What a schedule may do to a table."""

    DELIVER_NEXT = "deliver the oldest message"
    DELIVER_ANY = "deliver a message out of order"
    DROP = "lose a message"
    DUPLICATE = "repeat a message"
    HOLD = "keep a message back"
    RELEASE = "let go of a message kept back"
    CRASH = "crash a party"
    RESTART = "restart a party"
    ADVANCE = "let time pass to the next deadline"
    WORK = "finish a piece of work or training"


@dataclass(frozen=True)
class Step:
    """One action of a schedule; `choice` picks what it acts on among what there is by then."""

    action: Action
    choice: int


@named_arguments
def schedules(
    actions: Sequence[Action] = tuple(Action), *, longest: int = 60
) -> st.SearchStrategy[list[Step]]:
    """Sequences of steps for `play`; at least two steps of three deliver the oldest message."""
    weighted = [*actions, *([Action.DELIVER_NEXT] * 2 * len(actions))]
    return st.lists(st.builds(Step, st.sampled_from(weighted), st.integers(0, 2**16)), max_size=longest)


def play(table: Table, schedule: Sequence[Step]) -> None:
    """Perform the steps; one that finds nothing to act on is passed over."""
    for step in schedule:
        _perform(table, step)


def _perform(table: Table, step: Step) -> None:
    def chosen(options: Sequence[Any]) -> Any:
        return options[step.choice % len(options)]

    match step.action:
        case Action.DELIVER_NEXT if table.wire:
            table.deliver(table.wire[0])
        case Action.DELIVER_ANY if table.wire:
            table.deliver(chosen(table.wire))
        case Action.DROP if table.wire:
            table.drop(chosen(table.wire))
        case Action.DUPLICATE if table.wire:
            table.duplicate(chosen(table.wire))
        case Action.HOLD if table.wire:
            table.hold(chosen(table.wire))
        case Action.RELEASE if table.held:
            table.release(chosen(table.held))
        case Action.CRASH if table.present:
            table.crash(chosen(table.present))
        case Action.RESTART if table.crashed:
            table.restart(chosen(sorted(table.crashed)))
        case Action.WORK if table.jobs:
            table.run_job(chosen(table.jobs))
        case Action.ADVANCE:
            table.advance()
        case _:
            return
