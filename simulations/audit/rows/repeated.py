"""Rows of attacks that use one party's updates over several rounds; the reference rows are those of single rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from veilsum.simulations.attacks.attack import SeriesInversion, shared_budget, uploads_by_party
from veilsum.simulations.attacks.gradient.matching import AttackDoesNotFit, Reconstruction
from veilsum.simulations.attacks.gradient.targets import Target, as_noise
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.gradient import heading_of, targets_of
from veilsum.simulations.audit.rows.row import Row, RowKind, image_row
from veilsum.simulations.audit.stage import Played
from veilsum.simulations.audit.steps import Steps

ROUNDS = 4


def repeated_rows(attack: SeriesInversion, request: Request, steps: Steps) -> Iterator[Row]:
    """All rounds together, one round alone, nothing but noise, and the same without the defence."""
    request = replace(request, rounds=max(ROUNDS, request.rounds))
    played = list(request.stages())
    half = max(2, request.parties // 2)
    series = [(group, one) for one in played for group in _series(request, one)[:half]]
    if not series:
        raise AttackDoesNotFit(f"{request.attack} needs one party's updates over rounds; this view has none")
    steps.expect(4 * len(series))
    yield _row(attack, request, "attack", series, steps)
    single = [(group[:1], one) for group, one in series]
    yield replace(_row(attack, request, "attack", single, steps), target="one round alone")
    noise = [
        ([as_noise(target, request.seed + n) for n, target in enumerate(group)], one) for group, one in series
    ]
    yield _row(attack, request, "null", noise[:2], steps)
    plain = replace(request.undefended, rounds=request.rounds)
    bare = [(group, one) for one in plain.stages() for group in _series(plain, one)[:half]]
    undefended = _row(attack, plain, "undefended", bare, steps)
    yield undefended
    # Who is given the noise or needs no sketch holds the clean gradients: the same numbers, told of the defence.
    yield replace(undefended, row="oracle", scheme=request.scheme, defence=request.defence or "none")


def _series(request: Request, played: Played) -> list[list[Target]]:
    return uploads_by_party(targets_of(request, played))


def _row(
    attack: SeriesInversion,
    request: Request,
    kind: RowKind,
    series: Sequence[tuple[list[Target], Played]],
    steps: Steps,
) -> Row:
    invert = attack.invert_undefended if kind == "undefended" else attack.invert
    found: list[Reconstruction] = []
    budget = shared_budget(request.budget, series[0][0])
    for group, _ in series:
        steps(f"{request.scheme}/{request.adversary}/{request.attack}, {kind}")
        found.append(invert(group, budget, request.seed))
    rounds = len(series[0][0])
    heading = heading_of(request, kind, f"one party's uploads of {rounds} rounds")
    row = image_row(heading, found, [dict(played.truth) for _, played in series])
    threat = repr(series[0][1].view(request.adversary)) if kind == "attack" else ""
    return replace(row, threat=threat)
