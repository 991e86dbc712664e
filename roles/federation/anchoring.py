"""Which anchor a new version of a roster carries: where the chain of models begins.

Only federations whose scheme has a chain have one. It is made once, when everyone in `parties` has enrolled or the
organiser says `roster sign`, from what the parties state; from then on it stays, whoever comes or goes: an evicted
party stays in the electorate and counts there, and one that joins votes from the next position on. It changes in two
ways, by the organiser's word alone: a checkpoint moves it, and another chain begins where all parties state another
first model, or where the organiser says so (`roster sign --new-chain`; `launch --fresh` on one machine).

Implements specs/federation-file.md, section 13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from veilsum.protocol.agreed.anchor import CHAIN_ID_BYTES, Anchor, first_anchor
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import PartyId
from veilsum.roles.federation.first_models import FirstModel, common_model_hash
from veilsum.roles.process.entropy import system_entropy


@dataclass(frozen=True)
class Stated:
    """What an organiser knows when it signs: the anchor before, who is enrolled, and which first model each states."""

    before: Anchor | None
    participants: tuple[PartyId, ...]
    models: Mapping[PartyId, FirstModel]
    expected: tuple[str, ...]
    """Whom the settings list as parties, enrolled or not."""


ChooseAnchor: TypeAlias = Callable[[Stated], Anchor | None]


def anchor_after_change(known: Stated) -> Anchor | None:
    """The anchor when members changed: the one there is, or a first one as soon as all parties have stated theirs."""
    if known.before is not None:
        for name, one in known.models.items():
            _require_same_beginning(known.before, name, one)
        return known.before
    if known.models:
        common_model_hash(known.models)
    complete = set(known.models) == set(known.participants) == set(known.expected)
    return _made(known.models) if complete else None


def anchor_when_signing(known: Stated) -> Anchor | None:
    """The anchor when the organiser signs as it is: of what all enrolled parties state now."""
    before = known.before
    if not known.participants or (before is not None and before.checkpoint > 0):
        return before
    silent = [name for name in known.participants if name not in known.models]
    if silent:
        raise ParameterError(
            [
                f"no first model is stated by {', '.join(silent)}: veilsum keys first-model there, then give the file "
                "to veilsum roster sign with --first-model"
            ]
        )
    if before is not None and _begins_with(before, common_model_hash(known.models)):
        return before
    return _made(known.models)


def anchor_of_new_chain(known: Stated) -> Anchor | None:
    """The anchor of another chain, which begins with what all enrolled parties state."""
    return anchor_when_signing(replace(known, before=None))


def checkpoint_anchor(
    before: Anchor | None, position: int, state_hash: bytes, electorate: tuple[str, ...], least: int
) -> Anchor:
    """The anchor at another position of the same chain, or a refusal of what could not go on from there."""
    if before is None:
        raise ParameterError(
            [
                "the roster has no anchor to move: its scheme keeps no chain, or veilsum roster sign comes first"
            ]
        )
    if position < before.position:
        raise ParameterError(
            [f"the chain begins at position {before.position} already: position {position} is before it"]
        )
    if len(electorate) < least:
        raise ParameterError(
            [f"an electorate of {len(electorate)} is below min_parties, {least}: enrol more parties first"]
        )
    voters = tuple(sorted(map(PartyId, electorate)))
    return Anchor(before.chain, position, state_hash, voters, before.checkpoint + 1)


def _made(models: Mapping[PartyId, FirstModel]) -> Anchor:
    return first_anchor(system_entropy(CHAIN_ID_BYTES), common_model_hash(models), models)


def _begins_with(anchor: Anchor, model_hash: bytes) -> bool:
    return anchor.state_hash == first_anchor(anchor.chain, model_hash, anchor.electorate).state_hash


def _require_same_beginning(anchor: Anchor, name: PartyId, stated: FirstModel) -> None:
    if anchor.position == 0 and not _begins_with(anchor, stated.model_hash):
        raise ParameterError(
            [
                f"{name} begins with another first model than the one signed for {', '.join(anchor.electorate[:8])}: "
                "compare task, seed, model and --init there, then veilsum keys first-model anew; if all parties begin "
                "with another model now, veilsum roster sign"
            ]
        )
