"""What a scheme is.

A scheme says which role its participants have, who holds the model, builds the two machines of a round
(and, if it needs one, of a session's set-up), and states in words what each role may learn. The rest
(sessions, attempts, deadlines, simulation, faults, stateful tests, MQTT) is done for it, by asking the scheme:
nothing outside its package decides anything by its name. How one registers is said in protocol/schemes.

Implements specs/schemes.md, section 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from veilsum.protocol.agreed.parameters import Parameters, Schedule, Weights
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.agreed.threat import HONEST_IN_A_SUM, smallest_cohort, tolerated_colluders
from veilsum.protocol.crypto.identity import Role
from veilsum.protocol.errors import LocalProtocolError, ParameterError, Rejection
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import AttemptMachine, ParticipantContext, ServerContext
from veilsum.protocol.machines.session import Session
from veilsum.protocol.numbers.fixedpoint import FixedPoint, plan
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.randomness import RandomBytes
from veilsum.protocol.wire.carried import Carried, longest_vector
from veilsum.protocol.wire.messages import Message


class Scheme(ABC):
    """Who may learn what, and the machines that see to it; everything else asks the scheme and not its name."""

    name: ClassVar[str]
    participant_role: ClassVar[Role] = Role.CLIENT
    server_holds_model: ClassVar[bool] = True
    needs_rsa: ClassVar[bool] = False
    perturbs: ClassVar[bool] = False
    """Whether the server perturbs the model in every round, and participants never see the true one.

    Both sides are then given equipment: what the scheme brings, or a perturbation of the task's model
    (schemes/perturbed/equipment.py), if the scheme agrees on the settings of that one by deriving from `Perturbing`.
    """

    hides_updates: ClassVar[bool] = True
    """Whether the server sees sums alone; then parties insist on a graph that is safe for them."""

    unmasked: ClassVar[str | None] = None
    """The name of the same scheme without its masks, where there is one: the audit plays it beside this one."""

    default_min_parties: ClassVar[int] = 3
    """The smallest sum that a party takes part in, where `min_parties` is not set; more where updates are hidden
    and the federation's colluders demand it."""

    announces_next_hash: ClassVar[bool] = True
    """Whether participants are told the hash of the model after a round, where the server holds it."""

    has_chain: ClassVar[bool] = False
    """Whether every party takes the step itself from a verified sum, so that the server cannot choose the model.

    The step is one of protocol/numbers/step_kinds.py, whose settings are then among the parameters. Elsewhere it is the
    server's own, and may be one of torch.
    """

    shares_follow_graph: ClassVar[bool] = False
    """Whether shares of secrets travel along the agreed graph; else every party holds shares of every other."""

    passes_on: ClassVar[bool] = False
    """Whether its machines know sessions that pass a result on (`session.supported`), in which nobody uploads."""

    exact: ClassVar[bool] = True
    """Whether the result is the mean of the fixed-point encodings, bit for bit."""

    learns: ClassVar[Mapping[str, str]]
    """Role -> what it may learn, in words; shown by `veilsum simulate` and checked by the audit."""

    drop_points: ClassVar[Mapping[str, type[Message]]] = {}
    """Phase name -> the participant's message that ends it; `--drop 1@upload` loses a party right before it."""

    machines: ClassVar[Mapping[str, type[AttemptMachine]]] = {}
    """Machine name -> class, for the generated diagrams and the exhaustive tests."""

    options: ClassVar[tuple[str, ...]] = ()
    """Names that users may set with `--option NAME=VALUE`; the scheme finds them in `parameters.options`."""

    def __repr__(self) -> str:
        return f"<scheme {self.name}>"

    @abstractmethod
    def server_round(self, context: ServerContext) -> AttemptMachine:
        """The server's machine for one attempt of a round."""

    @abstractmethod
    def participant_round(self, context: ParticipantContext) -> AttemptMachine:
        """A participant's machine for one attempt of a round."""

    def server_setup(self, context: ServerContext) -> AttemptMachine | None:
        """The server's machine for the set-up of a session; None where there is nothing to set up."""
        return None

    def participant_setup(self, context: ParticipantContext) -> AttemptMachine | None:
        """A participant's machine for the set-up of a session; None where there is nothing to set up."""
        return None

    def certifies(self, parameters: Parameters) -> bool:
        """Whether parties vote on each position of the chain; without votes the server says which model is next."""
        return self.has_chain

    def introducing(self, session: Session) -> Session:
        """The server's session as it opens it: with whose hellos each member is shown, where that is not everyone's."""
        return session

    def options_of(self, settings: Mapping[str, Any]) -> Mapping[str, str]:
        """What the scheme makes of the settings that all parties agree on, by name: options that users do not set."""
        return {}

    def equipment_of(self, party: PartyId, parameters: Parameters) -> object | None:
        """What the scheme itself gives the machines of a party, which find it in their context; by default nothing.

        Asked once for every party when it starts, the server included, before the role gives anything.
        """
        return None

    def require_equipment(self, equipment: object | None, *, at_server: bool) -> None:
        """Raise `LocalProtocolError` if this is not what the scheme's machines work with."""
        if self.perturbs and equipment is None:
            who = "server" if at_server else str(self.participant_role)
            raise LocalProtocolError(
                f"the {who} of {self.name} works with equipment: let the scheme bring it (equipment_of), or derive it "
                "from Perturbing"
            )

    def carries(self, message: Message) -> Carried | None:
        """What a message of this scheme shows of an update to the party that it is sent to, hidden or not.

        The audit attacks it. By default the longest vector, as the update of the sender; a scheme that uploads anything
        else says so here.
        """
        return longest_vector(message)

    def most_vector_bytes(self, parameters: Parameters) -> int | None:
        """How many bytes the vectors of one message have together at most, the model of one that is behind included.

        A process refuses longer messages before they take memory. None, the default: the parameters do not say it, and
        the limit is that of the transport.
        """
        return None

    def parting_model(
        self, model: Model, equipment: object | None, random: RandomBytes, *, completed: bool
    ) -> Model | None:
        """What participants are left with when the run ends, where the server holds the model; asked once.

        None: nothing, which is for a run that failed. A scheme that perturbs must say what it is.
        """
        return model

    def require_graph(self, graph: Graph) -> None:
        """Raise `Rejection` if parties must not take part along this graph: unjoined parts are sums apart."""
        graph.require_connected()

    def problems(self, parameters: Parameters) -> Iterator[str]:
        """What is wrong with the parameters for this scheme; nothing by default."""
        return iter(())

    def warnings(self, parameters: Parameters) -> Iterator[str]:
        """What the chosen parameters leak; printed once at the start."""
        return iter(())

    def plan_numbers(
        self, parties: int, max_weight: int, clip: float, bits: int, options: Mapping[str, str]
    ) -> FixedPoint:
        """How numbers travel; by default the finest words that fit."""
        return plan(parties, max_weight, clip, bits).encoding


def starting_warnings(scheme: Scheme, parameters: Parameters) -> Iterator[str]:
    """What the scheme says of these parameters, and what they leak under every scheme that hides updates."""
    yield from scheme.warnings(parameters)
    if scheme.hides_updates and parameters.weights is Weights.SAMPLES and parameters.encoding.max_weight > 1:
        yield (
            "weights 'samples': two rounds whose cohorts differ by one party show how many samples that party holds "
            "to whoever sees the sums; use weights 'bucketed' or 'equal' to hide it"
        )


def require_machine(scheme: Scheme, made: object) -> AttemptMachine:
    """What a scheme made for an attempt, if it is a machine."""
    if not isinstance(made, AttemptMachine):
        raise LocalProtocolError(
            f"scheme {scheme.name} made {made!r:.60} for an attempt, not an AttemptMachine: correct its server_round "
            "and participant_round"
        )
    return made


def require_workable(scheme: Scheme, parameters: Parameters, roster: Roster | None = None) -> None:
    """Refuse parameters that this scheme cannot honour, or not with these parties, before any message."""
    problems = [*scheme.problems(parameters), *cohort_problems(scheme, parameters), *_exposures(scheme)]
    if roster is not None:
        problems += _roster_problems(scheme, parameters, roster)
    if problems:
        raise ParameterError(problems)


def least_parties(scheme: Scheme, colluders: int) -> int:
    """The default of `min_parties` in a federation of which so many participants may work with the server."""
    hidden = smallest_cohort(colluders) if scheme.hides_updates else 1
    return max(scheme.default_min_parties, hidden)


def cohort_problems(scheme: Scheme, parameters: Parameters) -> Iterator[str]:
    """Where a sum could be opened in which one honest party stands alone beside those who work with the server."""
    least = parameters.colluders + HONEST_IN_A_SUM
    if scheme.hides_updates and HONEST_IN_A_SUM < least > parameters.min_parties:
        yield (
            f"min_parties {parameters.min_parties} leaves one honest party alone with {parameters.colluders} that may "
            f"work with the server: set min_parties to at least {least}, or leave it out"
        )


def _exposures(scheme: Scheme) -> Iterator[str]:
    """Where a scheme that keeps the true model from participants would give it away by what it left unsaid."""
    if scheme.perturbs and scheme.announces_next_hash:
        yield f"{scheme.name} perturbs the model and tells the hash of the true one: set announces_next_hash = False"
    if scheme.perturbs and type(scheme).parting_model is Scheme.parting_model:
        yield f"{scheme.name} perturbs the model and would end with the true one: define parting_model"


def require_equipped(
    scheme: Scheme, model: Model | None, equipment: object | None, *, at_server: bool
) -> None:
    """Refuse to build a machine without the model it holds, or without what its scheme works with.

    The server of a chain may lack it: the parties give it the state that is certified (protocol/chain/asking.py).
    """
    given = scheme.has_chain and at_server
    if (scheme.has_chain or scheme.server_holds_model == at_server) and model is None and not given:
        who = "server" if at_server else str(scheme.participant_role)
        raise LocalProtocolError(f"the {who} of {scheme.name} holds the model: pass the first one")
    scheme.require_equipment(equipment, at_server=at_server)


def _roster_problems(scheme: Scheme, parameters: Parameters, roster: Roster) -> Iterator[str]:
    names, encoding = roster.participants, parameters.encoding
    if len(names) < parameters.min_parties:
        yield f"the roster has {len(names)} participants, min_parties is {parameters.min_parties}"
    demanded = tolerated_colluders(len(names), parameters.threat)
    if scheme.hides_updates and parameters.colluders < demanded:
        yield (
            f"the roster has {len(names)} participants, colluders is {parameters.colluders}: set it to at least "
            f"{demanded}, or trust the server to follow the protocol with threat semi-honest"
        )
    if len(names) > encoding.max_parties:
        yield (
            f"the roster has {len(names)} participants, the fixed-point budget is for {encoding.max_parties}: "
            "plan for all of them"
        )
    if scheme.needs_rsa:
        yield from (f"{name} has no RSA key" for name in names if roster.identity(name).rsa_public is None)
    try:
        scheme.require_graph(parameters.graph.draw(names, bytes(32)))
    except Rejection as problem:
        yield str(problem)


def secure_sum_problems(parameters: Parameters) -> Iterator[str]:
    """What no scheme that hides individual updates can work with."""
    if parameters.min_parties < 2:
        yield "min_parties must be at least 2: a sum over one party is that party's update"
    if parameters.schedule is not Schedule.FEDAVG:
        yield f"schedule '{parameters.schedule.value}' is for plain only: it passes models from hand to hand"
