"""Zero-sum masks from pairwise key agreement, with dropout recovery: the scheme, its messages and its two machines.

`Masked` is what is used from outside; `bilateral` hands its own payload to the same round.
"""

from __future__ import annotations

from collections.abc import Iterator

from veilsum.protocol.agreed.parameters import Parameters, Recovery
from veilsum.protocol.machines.attempt import AttemptMachine, ParticipantContext, ServerContext
from veilsum.protocol.machines.carried import Carried
from veilsum.protocol.machines.scheme import Scheme, secure_sum_problems
from veilsum.protocol.schemes.masked.client import MaskedClient
from veilsum.protocol.schemes.masked.messages import RoundKeys
from veilsum.protocol.schemes.masked.server import MaskedServer
from veilsum.protocol.schemes.registry import register
from veilsum.protocol.secure_sum.shares import ReleasedShares, SealedShares
from veilsum.protocol.secure_sum.survivors import SurvivorSignature
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message


@register
class Masked(Scheme):
    name = "masked"
    steps_by_parties = True
    learns = {
        "server": "the mean over at least min_parties survivors, and the global model",
        "client": "the global model",
        "broker": "who talks when, and how much",
    }
    drop_points = {
        "keys": RoundKeys,
        "shares": SealedShares,
        "upload": MaskedInput,
        "survivors": SurvivorSignature,
        "release": ReleasedShares,
    }
    machines = {"masked server": MaskedServer, "masked client": MaskedClient}

    def server_round(self, context: ServerContext) -> AttemptMachine:
        return MaskedServer(context)

    def participant_round(self, context: ParticipantContext) -> AttemptMachine:
        return MaskedClient(context)

    def carries(self, message: Message) -> Carried | None:
        return Carried(message.vector) if isinstance(message, MaskedInput) else None

    def problems(self, parameters: Parameters) -> Iterator[str]:
        yield from secure_sum_problems(parameters)

    def warnings(self, parameters: Parameters) -> Iterator[str]:
        if parameters.recovery is Recovery.NONE:
            yield "masked with recovery 'none': one missing upload ends the run"
        yield "masked: the server and every client learn the mean; a mean of few parties still tells about each"
