"""Rows of a server that sends a model of its own making: where it is believed, and where it is refused.

Without a chain the model is the server's to choose: the attack row reads what its view holds after a round at the
crafted model. With a chain the server tries it in earnest: it names the crafted model as the first round opens or,
where it holds no model, shifts the sum so that the next model would be the crafted one. The row then says how many
updates were given at that model, and with which typed reason the parties refused. The oracle row is what the chain
takes from it: the sum of the same parties' updates at the crafted model, unverified, as masks alone would give it.

Implements specs/attacks.md, section 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from veilsum.protocol.chain.state import ChainState
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.session import RoundOpened
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.schemes.ampc.messages import Aggregate
from veilsum.protocol.wire.messages import Message
from veilsum.roles.config.schemes import load_scheme
from veilsum.roles.learning.task import Samples
from veilsum.simulations.attacks.crafted.craft import CraftedGradients
from veilsum.simulations.attacks.gradient.targets import Target, as_noise, gradients_in
from veilsum.simulations.audit.lying.told import LYING_SERVER, Told, play_told
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.gradient import heading_of
from veilsum.simulations.audit.rows.measured import counted_row
from veilsum.simulations.audit.rows.row import Row, RowKind, image_row
from veilsum.simulations.audit.stage import Cast, Played, attackable_task, cast, play
from veilsum.simulations.audit.steps import Steps

IMAGES = 8
"""Per party, unless more are asked for: so many that an honest model's sum gives no image back by division."""
_PUBLIC = 400


def crafted_rows(attack: CraftedGradients, request: Request, steps: Steps) -> Iterator[Row]:
    request = replace(request, model=request.architecture, images=max(request.images, IMAGES), rounds=1)
    steps.expect(3)
    steps(f"{request.scheme}/{request.adversary}/{request.attack}")
    if load_scheme(request.scheme).has_chain:
        yield _refused_row(attack, request)
    else:
        by_note: dict[str, list[tuple[Target, Played]]] = {}
        for target, played in _targets(attack, request):
            by_note.setdefault(target.note, []).append((target, played))
        yield from (_read_row(attack, request, "attack", group) for group in by_note.values())
    if not request.references:
        return
    steps(f"{request.attack}, references")
    bare = request.undefended
    uploads = _targets(attack, bare)
    if request != bare:
        yield _read_row(attack, bare, "undefended", uploads)
    noise = [(as_noise(target, request.seed), played) for target, played in uploads[:2]]
    yield _read_row(attack, request, "null", noise)
    summed = [(_summed([target for target, _ in uploads]), uploads[0][1])]
    yield _read_row(attack, request, "oracle", summed)


def _targets(attack: CraftedGradients, request: Request) -> list[tuple[Target, Played]]:
    """The gradients in the server's view after a round at the crafted model."""
    config = request.config()
    model = _crafted(attack, request, cast(config, request.images))
    played = play(config, request.images, model=model)
    # Whoever crafted the model knows it, whatever others take for the first one.
    view = replace(played.view(request.adversary), initial_model=model)
    return [(target, played) for target in gradients_in(view, request.images)]


def _crafted(attack: CraftedGradients, request: Request, parties: Cast) -> Model:
    """From public samples, for which those of the test set stand."""
    public: Samples = attackable_task(request.config()).test
    few = public.take(np.arange(min(_PUBLIC, len(public))))
    return attack.craft(parties.views.facts, few, request.seed)


def _read_row(
    attack: CraftedGradients, request: Request, kind: RowKind, targets: Sequence[tuple[Target, Played]]
) -> Row:
    found = [attack.read(target) for target, _ in targets]
    heading = heading_of(request, kind, targets[0][0].note)
    row = replace(image_row(heading, found, [dict(played.truth) for _, played in targets]), images=None)
    if kind != "attack":
        return row
    return replace(row, adversary=LYING_SERVER, threat=repr(targets[0][1].view(request.adversary)))


def _summed(uploads: Sequence[Target]) -> Target:
    """The mean of these, as a server sees it that masks keep from each single one."""
    mean = np.mean([one.gradient.astype(np.float64) for one in uploads], axis=0)
    owners = tuple(name for one in uploads for name in one.owners)
    batch = sum(one.batch for one in uploads)
    return replace(uploads[0], kind="aggregate", owners=owners, batch=batch, gradient=mean.astype(np.float32))


def _refused_row(attack: CraftedGradients, request: Request) -> Row:
    config = replace(request, rounds=2).config()
    parties = cast(config, request.images)
    model = _crafted(attack, request, parties)
    told = play_told(parties, CraftingServer(parties, model))
    given = _given_at(parties, told, model)
    row = counted_row(request, "attack", "updates at a crafted model", given)
    return replace(refused(row, told, sum(given)), threat=repr(told.played.view(request.adversary)))


def refused(row: Row, told: Told, given: int) -> Row:
    """The row of a lie: with which reasons it was refused, and how many gave an update all the same."""
    if not told.refused:
        return replace(row, adversary=LYING_SERVER, note=f"{given} updates given, nobody said why not")
    reasons = ", ".join(reason.value for reason in told.refused)
    return replace(
        row,
        adversary=LYING_SERVER,
        extra={"refused": reasons, "updates_given": given},
        note=f"refused ({reasons}), {given} updates given",
    )


def _given_at(parties: Cast, told: Told, model: Model) -> list[bool]:
    """Of each party whether it ever gave what it trains from the crafted model."""
    learners = parties.federation.learners
    at_crafted = {str(name): one.train(model, 0).payload for name, one in learners.items()}
    everyone = told.played.views.view(*told.played.config.parties)
    return [
        any(
            one.party == name and np.allclose(one.payload, at_crafted[name], atol=1e-6)
            for one in everyone.own_updates
        )
        for name in at_crafted
    ]


@dataclass(frozen=True)
class CraftingServer:
    """Names the crafted model as a round opens; without a model of its own, moves the sum towards it."""

    parties: Cast
    model: Model

    def __call__(self, sender: PartyId, receiver: PartyId, message: Message) -> list[Message]:
        return [self._told(message) if sender == SERVER else message]

    def _told(self, message: Message) -> Message:
        federation = self.parties.federation
        if isinstance(message, RoundOpened) and federation.scheme.server_holds_model:
            anchor = federation.roster.anchor
            assert anchor is not None
            named = ChainState.of(anchor.chain, 0, b"", self.model).hash
            return replace(message, stamp=replace(message.stamp, model_hash=named), model=self.model)
        if isinstance(message, Aggregate):
            encoding = federation.parameters.encoding
            moved = np.clip(federation.initial_model - self.model, -encoding.clip, encoding.clip)
            words = np.array(message.vector)
            words[: len(moved)] += encoding.encode(moved.astype(np.float32), 1)[: len(moved)]
            return replace(message, vector=words)
        return message
