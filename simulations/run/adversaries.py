"""Who looks on at a simulation: the recorder of all views, and adversaries as users name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.numbers.model import Model
from veilsum.roles.config.spelling import did_you_mean
from veilsum.roles.learning.task import Samples
from veilsum.roles.views.recorder import ViewRecorder
from veilsum.roles.views.view import BROKER, PublicFacts
from veilsum.simulations.run.federation import Federation

COALITION = "coalition"


def view_recorder(
    federation: Federation,
    data: Mapping[PartyId, Samples],
    outputs: int,
    public_model: Model | None = None,
) -> ViewRecorder:
    """A recorder of what every party of a simulation sees.

    `data` is what each party trains on, `outputs` how many the model has; `public_model` is the first model that
    everybody knows, if the federation begins with another one.
    """
    shape = next(iter(data.values())).input_shape if data else ()
    facts = PublicFacts(federation.config.agreed(), federation.parameters.dimension, shape, outputs)
    first = federation.initial_model if public_model is None else public_model
    recorder = ViewRecorder(facts, first, data)
    recorder.hear_secrets(SERVER, federation.equipment[SERVER])
    return recorder


def members_of(adversary: str, parties: Sequence[str]) -> tuple[str, ...]:
    """Read an adversary as users write it: a role, `coalition`, `others`, or names joined by +.

    A curious client or peer is the first party. `coalition` is the server and that party; `others` is everyone
    but the last party, without the server.
    """
    first = parties[0]
    named = {
        SERVER: (SERVER,),
        BROKER: (BROKER,),
        "client": (first,),
        "peer": (first,),
        COALITION: (SERVER, first),
        "others": tuple(parties[:-1]),
    }
    if adversary in named:
        return named[adversary]
    members = tuple(adversary.split("+"))
    wrong = [name for name in members if name not in (SERVER, *parties)]
    if wrong or len(set(members)) != len(members):
        near = did_you_mean(adversary, named)
        raise ParameterError(
            [
                f"adversary {adversary!r} is not one of {', '.join(named)}, nor names of parties joined by +{near}"
            ]
        )
    return members
