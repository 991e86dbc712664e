"""What goes wrong in a simulated run, as users write it: what the network does, and which parties are lost."""

from __future__ import annotations

import random

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.messages import Message
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.spelling import did_you_mean
from veilsum.transport.errors import BadSetting
from veilsum.transport.memory.faults import PROBABILITIES, Faults


def read_faults(text: str) -> Faults:
    """Read `drop=0.1,duplicate=0.1,...`: what the network does to each message, and how often."""
    try:
        return Faults.parse(text)
    except BadSetting as error:
        near = did_you_mean(str(error.value).partition("=")[0], PROBABILITIES)
        raise BadSetting(error.setting, error.value, f"{error.allowed}{near}") from error


def losses(config: FederationConfig, text: str) -> dict[PartyId, type[Message]]:
    """Read `N@PHASE`: N parties drawn from the seed, lost right before the message that ends the phase."""
    scheme = config.load_scheme()
    count, at, phase = text.partition("@")
    if not at or not count.isdecimal() or phase not in scheme.drop_points:
        raise ParameterError(
            [
                f"drop {text!r}: write N@PHASE with PHASE one of {', '.join(scheme.drop_points)} for {scheme.name}"
                f"{did_you_mean(phase, scheme.drop_points)}"
            ]
        )
    if int(count) > len(config.parties):
        raise ParameterError([f"drop {text!r}: there are only {len(config.parties)} parties"])
    chosen = random.Random(config.seed).sample(sorted(config.parties), int(count))  # noqa: S311 - a simulated fault
    return dict.fromkeys(map(PartyId, chosen), scheme.drop_points[phase])
