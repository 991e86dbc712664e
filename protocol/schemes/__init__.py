"""The schemes: what travels in a round, and what each role may learn. The one import that scheme authors need.

A scheme is two machines, what each role may learn in words, and answers to what the rest asks of it:

    from veilsum.protocol.schemes import AttemptMachine, ParticipantContext, Scheme, ServerContext, register

    @register
    class MyScheme(Scheme):
        name = "my-scheme"                                  # --scheme my_module:MyScheme, or my_module:my-scheme
        learns = {"server": ..., "client": ..., "broker": ...}
        drop_points = {"upload": MyUpload}                  # --drop 1@upload
        machines = {"my server": MyServer, "my client": MyClient}

        def server_round(self, context: ServerContext) -> AttemptMachine: ...
        def participant_round(self, context: ParticipantContext) -> AttemptMachine: ...

A machine is a `TransitionTable`, a handler for each of its messages (`@handles`), and an outcome: `Committed` or
`Failed`. It returns events (`Send`, `WorkRequested`, ...) and never acts. Messages are frozen dataclasses under
`@message("my-scheme.upload")`. What differs from the usual is said by attributes: `hides_updates`,
`server_holds_model`, `has_chain`, `perturbs`, `needs_rsa`, `exact`, `options`, and by methods: `problems`,
`warnings`, `plan_numbers`, `equipment_of`, `options_of`, `parting_model`, `carries`. A scheme that changes one of ours
derives from it (`Masked`, `Perturbed`, ...).

Importing this package registers the schemes that are built in. specs/schemes.md walks through an example.
"""

from __future__ import annotations

from veilsum.protocol.agreed.parameters import Parameters, Recovery, Schedule, Timing
from veilsum.protocol.chain.state import hash_model
from veilsum.protocol.crypto.identity import Role
from veilsum.protocol.crypto.kdf import KeyContext, Purpose, derive_key
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import (
    AbortReason,
    LocalProtocolError,
    ParameterError,
    ProtocolError,
    Rejection,
    RemoteProtocolError,
)
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.attempt import (
    AttemptMachine,
    Committed,
    Failed,
    NextPhase,
    ParticipantContext,
    Prepared,
    ServerContext,
    WhenTrained,
    failure_of,
    handles,
    outcome_of,
    require_absent,
    require_from_server,
    server_was_silent,
)
from veilsum.protocol.machines.events import (
    DecisionMade,
    Event,
    Send,
    TrainingRequested,
    Warned,
    WorkRequested,
)
from veilsum.protocol.machines.scheme import Scheme, secure_sum_problems
from veilsum.protocol.machines.session import RoundClosed, RoundOpened, Session
from veilsum.protocol.machines.transitions import Phase, TransitionTable, Trigger
from veilsum.protocol.numbers.averaging import weighted_mean
from veilsum.protocol.numbers.fixedpoint import FixedPoint, plan
from veilsum.protocol.numbers.model import LocalResult, Model
from veilsum.protocol.numbers.ring import Ring, RingVector
from veilsum.protocol.numbers.stream import apply_masks
from veilsum.protocol.randomness import RandomBytes, require_random
from veilsum.protocol.schemes.ampc import Ampc, Mpc
from veilsum.protocol.schemes.masked import Masked
from veilsum.protocol.schemes.perturbed import Bilateral, Perturbed, Perturbing
from veilsum.protocol.schemes.perturbed.client import PerturbedClient
from veilsum.protocol.schemes.perturbed.equipment import (
    ClientPerturbation,
    Perturbation,
    ServerPerturbation,
    client_equipment,
    server_equipment,
)
from veilsum.protocol.schemes.perturbed.messages import PerturbedTerms, TermCheck
from veilsum.protocol.schemes.perturbed.server import PerturbedServer
from veilsum.protocol.schemes.plain import Plain
from veilsum.protocol.schemes.registry import find_scheme, register, scheme_names
from veilsum.protocol.secure_sum.masking import mask_upload, pair_mask_key
from veilsum.protocol.wire.carried import Carried
from veilsum.protocol.wire.messages import Length, MaxLength, Message, Stamp, Tensor, message, record

__all__ = [
    "SERVER",
    "AbortReason",
    "Ampc",
    "AttemptMachine",
    "Bilateral",
    "Carried",
    "ClientPerturbation",
    "Committed",
    "DecisionMade",
    "Event",
    "Failed",
    "FixedPoint",
    "Graph",
    "KeyContext",
    "Length",
    "LocalProtocolError",
    "LocalResult",
    "Masked",
    "MaxLength",
    "Message",
    "Model",
    "Mpc",
    "NextPhase",
    "ParameterError",
    "Parameters",
    "ParticipantContext",
    "PartyId",
    "Perturbation",
    "Perturbed",
    "PerturbedClient",
    "PerturbedServer",
    "PerturbedTerms",
    "Perturbing",
    "Phase",
    "Plain",
    "Prepared",
    "ProtocolError",
    "Purpose",
    "RandomBytes",
    "Recovery",
    "Rejection",
    "RemoteProtocolError",
    "Ring",
    "RingVector",
    "Role",
    "RoundClosed",
    "RoundOpened",
    "Schedule",
    "Scheme",
    "Secret",
    "Send",
    "ServerContext",
    "ServerPerturbation",
    "Session",
    "Stamp",
    "Tensor",
    "TermCheck",
    "Timing",
    "TrainingRequested",
    "TransitionTable",
    "Trigger",
    "Warned",
    "WhenTrained",
    "WorkRequested",
    "apply_masks",
    "client_equipment",
    "derive_key",
    "failure_of",
    "find_scheme",
    "handles",
    "hash_model",
    "mask_upload",
    "message",
    "outcome_of",
    "pair_mask_key",
    "plan",
    "record",
    "register",
    "require_absent",
    "require_from_server",
    "require_random",
    "scheme_names",
    "secure_sum_problems",
    "server_equipment",
    "server_was_silent",
    "weighted_mean",
]
