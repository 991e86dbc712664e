"""AMPC: peers decompose their vectors twice, and the server averages a model it cannot see. MPC: without the bias.

`Mpc` and `Ampc` are what is used from outside; views and attacks also read its secrets and messages.
"""

from __future__ import annotations

from collections.abc import Iterator

from veilsum.protocol.agreed.parameters import Bias, Parameters, Recovery, Rekey
from veilsum.protocol.crypto.identity import Role
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.machines.attempt import AttemptMachine, ParticipantContext, ServerContext
from veilsum.protocol.machines.scheme import Scheme, secure_sum_problems
from veilsum.protocol.schemes.ampc.messages import (
    Aggregate,
    ModelHeld,
    ResultDigest,
    SeedsForNeighbour,
    SeedsRevealed,
)
from veilsum.protocol.schemes.ampc.passing import PassingPeer, PassingRelay
from veilsum.protocol.schemes.ampc.peer import AmpcPeer
from veilsum.protocol.schemes.ampc.server import AmpcServer
from veilsum.protocol.schemes.ampc.session_relay import SessionRelay
from veilsum.protocol.schemes.ampc.setup import SessionSetup
from veilsum.protocol.schemes.registry import register
from veilsum.protocol.secure_sum.shares import ReleasedShares, SealedShares
from veilsum.protocol.secure_sum.survivors import SurvivorSignature
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.secure_sum.verification import most_vector_bytes, untagged
from veilsum.protocol.wire.carried import Carried
from veilsum.protocol.wire.messages import Message

DROP_POINTS = {
    "seeds": SeedsForNeighbour,
    "ready": ModelHeld,
    "shares": SealedShares,
    "upload": MaskedInput,
    "survivors": SurvivorSignature,
    "reveal": SeedsRevealed,
    "release": ReleasedShares,
    "result": ResultDigest,
}


@register
class Mpc(Scheme):
    """Peers split their updates into shares among neighbours: the server learns the mean alone."""

    name = "mpc"
    participant_role = Role.PEER
    server_holds_model = False
    needs_rsa = True
    has_chain = True
    passes_on = True
    learns = {
        "server": "the mean of each round, hence the global model",
        "peer": "the global model",
        "broker": "who talks when, and how much",
    }
    drop_points = DROP_POINTS
    machines = {
        "mpc server, set-up": SessionRelay,
        "mpc peer, set-up": SessionSetup,
        "mpc server": AmpcServer,
        "mpc peer": AmpcPeer,
        "mpc server, passing on": PassingRelay,
        "mpc peer, passing on": PassingPeer,
    }
    with_bias = False

    def server_setup(self, context: ServerContext) -> AttemptMachine | None:
        """A session that passes a result on has no sum, and needs no seeds."""
        return None if context.session.supported is not None else SessionRelay(context)

    def participant_setup(self, context: ParticipantContext) -> AttemptMachine | None:
        passes_on = context.session.supported is not None
        return None if passes_on else SessionSetup(context, with_bias=self.with_bias)

    def server_round(self, context: ServerContext) -> AttemptMachine:
        supported = context.session.supported
        if supported is not None:
            return PassingRelay(context, supported)
        return AmpcServer(context, learns_sum=not self.with_bias)

    def participant_round(self, context: ParticipantContext) -> AttemptMachine:
        supported = context.session.supported
        return AmpcPeer(context) if supported is None else PassingPeer(context, supported)

    def require_graph(self, graph: Graph) -> None:
        graph.require_safe_for_decomposition()

    def carries(self, message: Message) -> Carried | None:
        if isinstance(message, Aggregate):
            return Carried(untagged(message.vector), members=message.survivors)
        return Carried(untagged(message.vector)) if isinstance(message, MaskedInput) else None

    def most_vector_bytes(self, parameters: Parameters) -> int:
        return most_vector_bytes(parameters)

    def problems(self, parameters: Parameters) -> Iterator[str]:
        yield from secure_sum_problems(parameters)
        if parameters.bias is Bias.COMMON and not self.with_bias:
            yield "mpc has no bias: leave bias at 'own' or use the scheme ampc"

    def warnings(self, parameters: Parameters) -> Iterator[str]:
        yield "mpc: the server learns the mean of every round; use ampc to hide it"


@register
class Ampc(Mpc):
    """As `mpc`, under a bias that only peers know: the server learns neither an update nor the mean."""

    name = "ampc"
    learns = {
        "server": "nothing but uniform words",
        "peer": "the global model, by design",
        "broker": "who talks when, and how much",
    }
    machines = {
        "ampc server, set-up": SessionRelay,
        "ampc peer, set-up": SessionSetup,
        "ampc server": AmpcServer,
        "ampc peer": AmpcPeer,
        "ampc server, passing on": PassingRelay,
        "ampc peer, passing on": PassingPeer,
    }
    with_bias = True

    def warnings(self, parameters: Parameters) -> Iterator[str]:
        yield "ampc: one peer that colludes with the server gives it the global model"
        if parameters.recovery is Recovery.NONE:
            yield "ampc with recovery 'none': one missing upload ends the run"
        if parameters.rekey is Rekey.EPOCH:
            yield "ampc: theft of a peer's RSA key opens the seeds of every recorded session sealed to it"
