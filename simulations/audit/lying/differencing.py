"""Rows of a server that subtracts two sums which differ by one party: at one model, and over two rounds.

At one model (`sums-at-one-model`): where sums are not verified and nobody holds the chain, the server opens the same
model again without one party; the undefended and the oracle row have these two sums, as words. Under a chain the server
opens the first round a second time, and the row says how it was refused. Over two rounds (`sums-over-rounds`) nobody
lies: one upload of the second round is lost, and the row says how far off the difference is.

Implements specs/attacks.md, section 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.session import RoundOpened, SessionOpened
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message
from veilsum.roles.config.schemes import load_scheme
from veilsum.roles.learning.seeds import generator
from veilsum.simulations.attacks.carried import uploads_in
from veilsum.simulations.attacks.rounds.differencing import (
    Difference,
    ExactDifferencing,
    RoundDifferencing,
    subtracted,
)
from veilsum.simulations.audit.lying.crafted import refused
from veilsum.simulations.audit.lying.told import LYING_SERVER, play_told
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.measured import counted_row
from veilsum.simulations.audit.rows.row import Row, RowKind
from veilsum.simulations.audit.stage import Played, cast
from veilsum.simulations.audit.steps import Steps
from veilsum.simulations.audit.sweeps.perturbed_models import true_updates

EXACT = 1e-4
"""The relative error below which a difference is the update itself, rounded as float32 and fixed point round."""
AT_ONE_MODEL = "two sums at one model that differ by one party"
OVER_ROUNDS = "two rounds that differ by one party"


def exact_rows(_: ExactDifferencing, request: Request, steps: Steps) -> Iterator[Row]:
    request = replace(request, model=request.architecture)
    steps.expect(2)
    steps(f"{request.scheme}/{request.adversary}/{request.attack}")
    if load_scheme(request.scheme).has_chain:
        parties = cast(replace(request, rounds=2).config(), request.images)
        told = play_told(parties, standing_still)
        twice = _second_updates(told.played)
        row = counted_row(request, "attack", AT_ONE_MODEL, [one > 1 for one in twice.values()])
        given = sum(count > 1 for count in twice.values())
        yield replace(refused(row, told, given), threat=repr(told.played.view(request.adversary)))
    else:
        yield replace(_still_row(request, "attack"), adversary=LYING_SERVER)
    if not request.references:
        return
    steps(f"{request.attack}, references")
    if not request.is_baseline:
        yield _still_row(request.undefended, "undefended")
    yield _null_row(request, AT_ONE_MODEL)
    yield _still_row(request.undefended, "oracle", request)


def round_rows(attack: RoundDifferencing, request: Request, steps: Steps) -> Iterator[Row]:
    request = replace(request, model=request.architecture, rounds=2)
    steps.expect(1)
    steps(f"{request.scheme}/{request.adversary}/{request.attack}")
    victim = victim_of(request)
    parties = cast(request.config(), request.images)
    told = play_told(parties, LostInSecondRound(victim))
    view = told.played.view(request.adversary)
    found = attack.between(view)
    truth = true_updates(told.played)[victim, 0]
    row = _judged(request, "attack", OVER_ROUNDS, found, truth)
    yield replace(row, threat=repr(view))
    if request.references:
        yield _null_row(request, OVER_ROUNDS)
        yield _still_row(request.undefended, "oracle", request)


def victim_of(request: Request) -> str:
    return str(request.config().parties[-1])


def _second_updates(played: Played) -> Mapping[str, int]:
    """How often each party gave an update at the first model in an attempt of its own."""
    seen: dict[str, set[tuple[bytes, int]]] = {name: set() for name in played.config.parties}
    for sender, stamp, _ in uploads_in(played.view(SERVER), 0):
        seen[sender].add((stamp.session, stamp.attempt))
    return {name: len(attempts) for name, attempts in seen.items()}


def _still_row(played_as: Request, kind: RowKind, told_of: Request | None = None) -> Row:
    """What two unverified sums at one model give: here made of the updates that plain FedAvg shows."""
    played = next(replace(played_as, rounds=1).stages())
    truth, victim = true_updates(played), victim_of(played_as)
    encoding = played.config.parameters(len(truth[victim, 0])).encoding
    samples = {name: len(one) for name, one in played.truth.items()}
    words = {
        name: encoding.encode(update, samples[name])
        for (name, round_), update in truth.items()
        if round_ == 0
    }
    everyone = np.sum(list(words.values()), axis=0, dtype=encoding.ring.dtype)
    found = subtracted(encoding, everyone, everyone - words[victim])
    row = _judged(told_of or played_as, kind, AT_ONE_MODEL, found, truth[victim, 0])
    return replace(row, threat=repr(played.view(played_as.adversary))) if kind == "attack" else row


def _null_row(request: Request, target: str) -> Row:
    played = next(replace(request.undefended, rounds=1).stages())
    truth = true_updates(played)[victim_of(request), 0]
    noise = generator(request.seed, "null difference").standard_normal(len(truth))
    size = float(np.linalg.norm(truth)) / float(np.linalg.norm(noise))
    return _judged(request, "null", target, Difference(noise * size, 0.0), truth)


def _judged(request: Request, kind: RowKind, target: str, found: Difference, truth: Model) -> Row:
    exact = truth.astype(np.float64)
    error = float(np.linalg.norm(found.update - exact) / max(float(np.linalg.norm(exact)), 1e-30))
    figures: dict[str, Any] = {
        "update_error": error,
        "correlation": float(np.corrcoef(found.update, exact)[0, 1]),
        "samples_found": found.samples,
    }
    note = f"off by {error:.1e} of the update, sample count {found.samples:.3g}"
    return counted_row(request, kind, target, [error < EXACT], note=note, extra=figures)


def standing_still(sender: PartyId, _: PartyId, message: Message) -> list[Message]:
    """A server that opens the first round again where the second is due."""
    if sender != SERVER or not isinstance(message, RoundOpened | SessionOpened) or not message.stamp.round:
        return [message]
    return [replace(message, stamp=replace(message.stamp, round=0, attempt=message.stamp.attempt + 1))]


@dataclass(frozen=True)
class LostInSecondRound:
    """An upload that does not arrive."""

    victim: str

    def __call__(self, sender: PartyId, receiver: PartyId, message: Message) -> list[Message]:
        lost = sender == self.victim and isinstance(message, MaskedInput) and message.stamp.round == 1
        return [] if lost else [message]
