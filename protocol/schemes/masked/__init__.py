"""Zero-sum masks from pairwise key agreement, with dropout recovery: the scheme, its messages and its two machines.

`Masked` is what is used from outside; `bilateral` hands its own payload to the same round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from veilsum.protocol.agreed.parameters import Parameters, Recovery
from veilsum.protocol.machines.attempt import AttemptMachine, ParticipantContext, ServerContext
from veilsum.protocol.machines.scheme import Scheme, secure_sum_problems
from veilsum.protocol.machines.session import Session
from veilsum.protocol.schemes.masked.client import MaskedClient
from veilsum.protocol.schemes.masked.messages import RoundKeys
from veilsum.protocol.schemes.masked.server import MaskedServer
from veilsum.protocol.schemes.registry import register
from veilsum.protocol.secure_sum.certifying import SumOpened, SumVote
from veilsum.protocol.secure_sum.group_key import GroupKeyRelay, GroupKeySetup, dealer_of
from veilsum.protocol.secure_sum.passing import PassingMember, PassingServer
from veilsum.protocol.secure_sum.shares import ReleasedShares, SealedShares
from veilsum.protocol.secure_sum.survivors import SurvivorSignature
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.secure_sum.verification import most_vector_bytes, untagged
from veilsum.protocol.wire.carried import Carried
from veilsum.protocol.wire.messages import Message


@register
class Masked(Scheme):
    """Updates travel under masks that cancel: the server learns the mean of the survivors."""

    name = "masked"
    has_chain = True
    shares_follow_graph = True
    passes_on = True
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
        "vote": SumVote,
    }
    machines = {
        "masked server, set-up": GroupKeyRelay,
        "masked client, set-up": GroupKeySetup,
        "masked server": MaskedServer,
        "masked client": MaskedClient,
        "masked server, passing on": PassingServer,
        "masked client, passing on": PassingMember,
    }

    def certifies(self, parameters: Parameters) -> bool:
        """With neighbourhoods alone on the lists there are too many parties to count everyone's vote."""
        return not parameters.lists_neighbourhoods

    def introducing(self, session: Session) -> Session:
        """With neighbourhoods alone on the lists, everyone but the dealer is shown its own hello and the dealer's."""
        if not session.terms.parameters.lists_neighbourhoods:
            return session
        dealer = dealer_of(session.id, session.members)
        return replace(session, shown={name: (name, dealer) for name in session.members if name != dealer})

    def server_setup(self, context: ServerContext) -> AttemptMachine | None:
        """A session that passes a result on has no sum, and needs no group key."""
        return None if context.session.supported is not None else GroupKeyRelay(context)

    def participant_setup(self, context: ParticipantContext) -> AttemptMachine | None:
        return None if context.session.supported is not None else GroupKeySetup(context)

    def server_round(self, context: ServerContext) -> AttemptMachine:
        supported = context.session.supported
        return MaskedServer(context) if supported is None else PassingServer(context, supported)

    def participant_round(self, context: ParticipantContext) -> AttemptMachine:
        supported = context.session.supported
        return MaskedClient(context) if supported is None else PassingMember(context, supported)

    def carries(self, message: Message) -> Carried | None:
        """Of a sum that has a bit for each of its parties, their names are told by the result of the round."""
        if isinstance(message, SumOpened):
            return None if message.present else Carried(untagged(message.words), members=message.survivors)
        return Carried(untagged(message.vector)) if isinstance(message, MaskedInput) else None

    def most_vector_bytes(self, parameters: Parameters) -> int:
        return most_vector_bytes(parameters)

    def problems(self, parameters: Parameters) -> Iterator[str]:
        yield from secure_sum_problems(parameters)

    def warnings(self, parameters: Parameters) -> Iterator[str]:
        if parameters.recovery is Recovery.NONE:
            yield "masked with recovery 'none': one missing upload ends the run"
        yield "masked: the server and every client learn the mean; a mean of few parties still tells about each"
