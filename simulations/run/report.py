"""A simulation as text: a table of rounds, the final metric beside the compared run, and who saw what."""

from __future__ import annotations

from collections.abc import Iterator

from veilsum.roles.cli.output import Table
from veilsum.roles.learning.contract import headline, sha256_of
from veilsum.simulations.run.record import RoundRecord
from veilsum.simulations.run.refused import in_words, shown_refusals
from veilsum.simulations.run.result import SimulationFacts, what_was_seen

COLUMNS = (
    "round",
    "who took part",
    "attempt",
    "loss",
    "metric",
    "up/plain",
    "down/plain",
    "distance",
    "virtual s",
)
NAMES_SHOWN = 8


def describe(result: SimulationFacts) -> str:
    if result.lie is not None:
        return result.lie.describe()
    return "\n".join([Table(title(result), COLUMNS, rows(result)).render(), *summary(result), ""])


def title(result: SimulationFacts) -> str:
    config = result.federation.config
    return f"{config.scheme}: {len(config.parties)} parties, task {config.task}, seed {config.seed}"


def rows(result: SimulationFacts) -> list[tuple[str, ...]]:
    """One row per committed round, under COLUMNS."""
    plain = result.plain_bytes
    return [_row(one, *plain) for one in result.rounds]


def _row(one: RoundRecord, plain_up: int, plain_down: int) -> tuple[str, ...]:
    best, count = headline(one.metrics), len(one.members)
    return (
        str(one.round),
        " ".join(one.members) if count <= NAMES_SHOWN else f"{count} parties",
        str(one.attempt),
        f"{one.loss:.4f}" if one.loss is not None else "",
        f"{best[1]:.4f}" if best is not None else "",
        f"{one.bytes_up / (count * plain_up):.2f}",
        f"{one.bytes_down / (count * plain_down):.2f}",
        f"{one.mean_distance:.4f}" if one.mean_distance is not None else "",
        f"{one.virtual_s:.1f}",
    )


def summary(result: SimulationFacts) -> Iterator[str]:
    yield from _outcome(result)
    yield from _comparison(result)
    yield from _cost(result)
    yield ""
    for role, seen in what_was_seen(result):
        yield f"{role + ':':<8} {seen}"
    if result.recorder.warnings:
        yield ""
        yield from (f"warning: {text}" for text in result.recorder.warnings)


def brief(result: SimulationFacts) -> Iterator[str]:
    """What a prompt shows: nothing that must be computed first, in ten lines at most."""
    yield title(result)
    wanted = result.federation.config.rounds
    last = result.rounds[-1].loss if result.rounds else None
    yield f"rounds        {len(result.rounds)} of {wanted}" + (
        f", loss {last:.4f}" if last is not None else ""
    )
    yield from _outcome(result)
    yield from _comparison(result)
    up, down = result.bytes_up_over_plain, result.bytes_down_over_plain
    if up is not None and down is not None:
        yield f"bytes         up {up:.2f} x, down {down:.2f} x of plain FedAvg"
    if result.lie is not None:
        yield "lie           one was told: result.lie says what became of it"
    if result.recorder.warnings:
        yield f"warnings      {len(result.recorder.warnings)}: result.recorder.warnings"


def _outcome(result: SimulationFacts) -> Iterator[str]:
    lost = [node.name for node in result.simulation.participants if not node.alive]
    if lost:
        yield f"lost parties  {', '.join(lost)}"
    if result.interrupted:
        yield f"INTERRUPTED   after {len(result.rounds)} of {result.federation.config.rounds} rounds"
    if result.failed is not None:
        yield f"ABORTED       {in_words(result.failed)}"
    yield f"model         sha256 {sha256_of(result.model)[:16]}"
    if result.exact:
        yield "ring sum      equals the sum of the members' inputs, bit for bit"


def _comparison(result: SimulationFacts) -> Iterator[str]:
    best = headline(result.metrics)
    if best is None:
        return
    baseline = result.baseline
    beside = headline(baseline.metrics) if baseline is not None else None
    text = f"{best[0]:<13} {best[1]:.4f}"
    if baseline is not None and beside is not None:
        left_out = " without the defence" if baseline.defence_left_out else ""
        text += f"   {baseline.name}{left_out} {beside[1]:.4f}"
        if baseline.model is not None:
            same = sha256_of(baseline.model) == sha256_of(result.model)
            apart = f"   models {result.baseline_distance:.1e} apart"
            text += "   same model bytes" if same else apart
    yield text


def _cost(result: SimulationFacts) -> Iterator[str]:
    up, down = result.bytes_up_over_plain, result.bytes_down_over_plain
    if up is not None and down is not None:
        yield f"bytes         up {up:.2f} x, down {down:.2f} x of plain FedAvg"
    errors = [one.max_abs_error for one in result.rounds if one.max_abs_error == one.max_abs_error]
    if errors:
        yield f"error         at most {max(errors):.1e} against the float64 mean of the same inputs"
    training = sum(node.training_cpu_s for node in result.simulation.nodes.values())
    protocol = result.protocol_cpu_s
    yield f"time          {result.wall_s:.2f} s, of it protocol {protocol:.2f} s, training {training:.2f} s"
    yield f"attempts      {result.recorder.attempts}, refused messages {len(result.simulation.refusals)}"
    yield from (f"              {text}" for text in shown_refusals(result.simulation.refusals))
