"""From a configuration to what the protocol and the learner work with, with all problems found in one go.

Settings are examined one after the other; where one is wrong, a harmless stand-in takes its place so that the
remaining questions can still be asked. Whoever corrects a file then corrects it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from veilsum.protocol.agreed.parameters import (
    COMPLETE_GRAPH,
    Bias,
    Differencing,
    Parameters,
    Recovery,
    Rekey,
    Schedule,
    ShareMode,
    Weights,
)
from veilsum.protocol.agreed.sizing import find_degree_and_threshold
from veilsum.protocol.agreed.threat import HONEST_IN_A_SUM, Threat, tolerated_colluders
from veilsum.protocol.errors import LocalProtocolError, ParameterError, Rejection
from veilsum.protocol.graphs.policy import GraphKind, GraphPolicy, parse_graph
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.scheme import Scheme, cohort_problems
from veilsum.protocol.numbers.fixedpoint import FixedPoint, plan
from veilsum.roles.config.spelling import did_you_mean
from veilsum.roles.config.values import FederationValues

LARGEST_COMPLETE_GRAPH = 100
_DRAWING_SEED = bytes(32)

T = TypeVar("T")


class Problems:
    """What was found wrong so far."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def attempt(self, make: Callable[[], T], stand_in: T) -> T:
        """The value, or the stand-in after noting what is wrong."""
        try:
            return make()
        except ParameterError as error:
            self.found += [one for one in error.problems if one not in self.found]
        except LocalProtocolError as error:
            self.found.append(str(error))
        except Rejection as refusal:
            self.found.append(str(refusal))
        return stand_in


def build_parameters(config: FederationValues, dimension: int) -> Parameters:
    problems = Problems()
    scheme = problems.attempt(config.load_scheme, None)
    no_graph: tuple[GraphPolicy, int | None] = (COMPLETE_GRAPH, None)
    graph, threshold = problems.attempt(lambda: choose_graph(config, scheme), no_graph)
    encoding = problems.attempt(
        lambda: _plan_numbers(config, scheme),
        plan(len(config.parties), 1, 1.0, 64).encoding,
    )
    problems.found += _option_problems(config, scheme)
    problems.found += _colluder_problems(config, scheme)
    smallest = problems.attempt(lambda: config.cohort_floor, Scheme.default_min_parties)
    made = problems.attempt(
        lambda: Parameters(
            scheme=config.scheme if scheme is None else scheme.name,
            encoding=encoding,
            dimension=dimension,
            colluders=config.colluder_count,
            min_parties=smallest,
            graph=graph,
            threat=Threat(config.threat),
            threshold=threshold,
            recovery=Recovery(config.recovery),
            bias=Bias(config.bias),
            share_mode=ShareMode(config.shares),
            rekey=Rekey(config.rekey),
            schedule=Schedule(config.schedule),
            payload=config.upload,
            weights=Weights(config.weights),
            differencing=Differencing(config.differencing),
            max_attempts=config.max_attempts,
            step=_step(config, scheme),
            options=_options(config, scheme),
        ),
        None,
    )
    if made is not None and scheme is not None:
        problems.found += [*scheme.problems(made), *cohort_problems(scheme, made)]
    if made is None or problems.found:
        raise ParameterError(problems.found)
    return made


def choose_graph(config: FederationValues, scheme: Scheme | None) -> tuple[GraphPolicy, int | None]:
    """The rule for the graph, and the threshold that goes with it if it is not the usual one."""
    parties = len(config.parties)
    if config.graph != "auto":
        policy = _read_graph(config.graph)
        _require_safe(policy, config, scheme)
        return policy, config.threshold
    if parties <= LARGEST_COMPLETE_GRAPH or not _hides_updates(scheme):
        return COMPLETE_GRAPH, config.threshold
    size = find_degree_and_threshold(parties, config.corrupt, config.dropout, Threat(config.threat))
    return GraphPolicy(GraphKind.K_REGULAR, k=size.k), config.threshold or size.t


def _read_graph(text: str) -> GraphPolicy:
    try:
        return parse_graph(text)
    except ParameterError as error:
        near = did_you_mean(text.partition(":")[0], [kind.value for kind in GraphKind])
        raise ParameterError([f"{error}{near}"]) from error


def find_problems(config: FederationValues) -> list[str]:
    """All that cannot work whatever the model's dimension."""
    from veilsum.roles.learning.splits import parse_split

    problems = Problems()
    problems.attempt(lambda: config.timing, None)
    problems.attempt(lambda: parse_split(config.split), None)
    problems.attempt(config.training_options, None)
    problems.attempt(config.task_options, None)
    problems.attempt(lambda: _require_task_name(config.task), None)
    problems.attempt(lambda: _require_fitting_defence(config), None)
    problems.attempt(lambda: _require_fitting_optimizer(config), None)
    problems.attempt(lambda: build_parameters(config, 1), None)
    return problems.found


def _require_task_name(name: str) -> None:
    """Refuse a task that cannot exist, without loading its data or running its code."""
    from veilsum.roles.learning.datasets.registry import BUILT_IN, VECTORS, unknown_task
    from veilsum.roles.learning.datasets.vectors import VectorsTask

    base, _, argument = name.partition(":")
    if base == VECTORS:
        VectorsTask.parse(argument)
    elif base not in BUILT_IN and not (base and argument):
        raise unknown_task(name)


def _options(config: FederationValues, scheme: Scheme | None) -> dict[str, str]:
    """What users set as options, and what the scheme makes of the other settings."""
    return {**config.options, **({} if scheme is None else scheme.options_of(config.agreed()))}


def _option_problems(config: FederationValues, scheme: Scheme | None) -> Iterator[str]:
    known = config.options if scheme is None else scheme.options
    for name in config.options:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            yield f"option {name!r} is not one of scheme {config.scheme}: {has}{did_you_mean(name, known)}"


def _colluder_problems(config: FederationValues, scheme: Scheme | None) -> Iterator[str]:
    """Fewer than the threat demands would let a server show two survivor lists; too many leave nobody to hide among."""
    parties, colluders = len(config.parties), config.colluders
    demanded = tolerated_colluders(parties, Threat(config.threat))
    if colluders is None or not _hides_updates(scheme):
        return
    if colluders < demanded:
        yield (
            f"colluders {colluders} is below {demanded}, a third of {parties} parties: leave it out, or trust the "
            "server to follow the protocol with threat semi-honest"
        )
    if colluders + HONEST_IN_A_SUM > parties:
        yield (
            f"colluders {colluders} of {parties} parties leaves fewer than two that hide each other: set it to at most "
            f"{max(0, parties - HONEST_IN_A_SUM)}"
        )


def _step(config: FederationValues, scheme: Scheme | None) -> str:
    """The step as all agree on it, where participants can take it."""
    if scheme is None or not scheme.has_chain:
        return ""
    from veilsum.roles.learning.training.party_step import make_step

    return make_step(config.training_options()).describe()


def _plan_numbers(config: FederationValues, scheme: Scheme | None) -> FixedPoint:
    parties, weight = len(config.parties), Weights(config.weights).of(config.weight_limit)
    if scheme is None:
        return plan(parties, weight, config.clip, config.bits).encoding
    return scheme.plan_numbers(parties, weight, config.clip, config.bits, _options(config, scheme))


def _require_fitting_defence(config: FederationValues) -> None:
    from veilsum.roles.learning.defences.parse import parse_defence

    problems = list(parse_defence(config.defence, config.code).problems(config))
    if problems:
        raise ParameterError(problems)


def _require_fitting_optimizer(config: FederationValues) -> None:
    """An optimiser that remembers needs somebody who gives its memory to those who join: a server which holds the
    model, or the parties of a chain.
    """
    from veilsum.roles.learning.training.settings import PLAIN_STEP

    if config.server_optimizer == PLAIN_STEP:
        return
    scheme = config.load_scheme()
    remembers = _remembers(config.server_optimizer, by_parties=scheme.has_chain)
    problems = []
    if remembers and not scheme.server_holds_model and not scheme.has_chain:
        problems.append(
            f"server_optimizer: in {config.scheme} every peer takes the step itself, and one that joins later would "
            "remember nothing: leave it out, or use a scheme whose server holds the model or that has a chain"
        )
    if config.schedule != Schedule.FEDAVG.value:
        problems.append(f"server_optimizer: schedule {config.schedule} averages nothing: leave it out")
    if config.task.partition(":")[0] == "vectors" and not scheme.has_chain:
        problems.append(f"server_optimizer: task {config.task} has no parameters: leave it out")
    if problems:
        raise ParameterError(problems)


def _remembers(text: str, *, by_parties: bool) -> bool:
    """Whether the step depends on those before it; refused if it is not one that can be taken there."""
    from veilsum.roles.learning.training.party_step import read_step

    if not by_parties:
        from veilsum.roles.learning.training.server_optimizer import is_of_torch, read_optimizer

        if is_of_torch(text):
            read_optimizer(text)
            return True
    return bool(read_step(text)[0].remembered)


def _require_safe(policy: GraphPolicy, config: FederationValues, scheme: Scheme | None) -> None:
    """Refuse a graph that is too thin even with all parties there, or that names a stranger."""
    names = [PartyId(name) for name in config.parties]
    strangers = sorted({end for edge in policy.edges for end in edge} - set(names))
    if strangers:
        raise ParameterError([f"graph: not among the parties: {', '.join(strangers)}"])
    if _hides_updates(scheme):
        policy.draw(names, _DRAWING_SEED).require_safe_for_decomposition()


def _hides_updates(scheme: Scheme | None) -> bool:
    return scheme is None or scheme.hides_updates


def samples_of_task(config: FederationValues) -> int:
    """How many training samples the configured task has, or the party with most of them where each has its own folder;
    1 for vectors, which weigh the same.
    """
    from veilsum.roles.learning.datasets.registry import load_task
    from veilsum.roles.learning.datasets.vectors import VectorsTask

    parties = tuple(config.data_folders.of_party) or (None,)
    tasks = [load_task(config.task, config.task_options(party=name), config.code) for name in parties]
    return max(1 if isinstance(task, VectorsTask) else len(task.train) for task in tasks)
