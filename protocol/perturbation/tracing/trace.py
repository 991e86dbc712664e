"""Find out which factors a model can carry, by walking its graph.

`torch.fx` turns the forward function into a graph; one run on an example gives every node its shape; the
rules give every tensor its factor identifiers. Skips, concatenations and products written in `forward` need
no declaration. A list of layers declared by the user was the alternative; it can express less and can lie.

What has no rule is refused by name. With `barrier="unit"` it is accepted instead, with a warning in the plan: the
factors of its inputs are set to one, which is exact for any operation and hides nothing around it.
A plan is handed out only after its self-test, which compares the perturbed model with the true one.

Implements specs/perturbation.md, section 7.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch.fx.node import Node, map_arg

from veilsum.protocol.perturbation.algebra.selftest import run_self_test
from veilsum.protocol.perturbation.errors import (
    FAILURES_OF_MODELS,
    UnsupportedModel,
    first_line,
)
from veilsum.protocol.perturbation.tracing.chains import find_dense_chain, takes_channels_last
from veilsum.protocol.perturbation.tracing.plan import Head, PerturbationPlan
from veilsum.protocol.perturbation.tracing.refusals import refusal_for
from veilsum.protocol.perturbation.tracing.rules import (
    FUNCTION_RULES,
    METHOD_RULES,
    MODULE_RULES,
    NUMBER_FUNCTIONS,
    NUMBER_METHODS,
    Rule,
)
from veilsum.protocol.perturbation.tracing.steps import Ledger, Step, Tracked, ones_like

Barrier = Literal["refuse", "unit"]


def trace(model: nn.Module, example: Tensor, *, barrier: Barrier = "refuse") -> PerturbationPlan:
    """Plan the perturbation of a model from one batch of inputs, whose values do not matter.

    Raises `UnsupportedModel` with the node and the reason. The model itself is neither changed nor copied.
    """
    _require_plain_parameters(model)
    if not example.is_floating_point() or example.dim() < 2:
        raise UnsupportedModel("input", "the example must be a batch of floating-point samples")
    graph = _graph_of(model)
    head_node = _head_of(graph)
    walk = _Walk(graph, head_node, barrier)
    # A batch of two: enough to notice operations that mix samples, and to normalise over.
    like = next(model.parameters(), example)
    with torch.no_grad():
        walk.run(like.new_zeros(2, *example.shape[1:]))
    plan = _plan_from(model, example, walk.ledger, graph, head_node)
    run_self_test(plan)
    return plan


def _plan_from(
    model: nn.Module, example: Tensor, ledger: Ledger, graph: fx.GraphModule, head_node: Node
) -> PerturbationPlan:
    head_name = str(head_node.target)
    names = [name for name, _ in model.named_parameters()]
    for name in names:
        if name not in ledger.parameters:
            raise UnsupportedModel(name, "this parameter is never used by a supported layer; leave it out")
    head = model.get_submodule(head_name)
    assert isinstance(head, nn.Linear)
    return PerturbationPlan(
        parameters=tuple(ledger.parameters[name] for name in names),
        table=ledger.space.solve(),
        head=Head(head_name, head.out_features, head.in_features, head.bias is not None),
        norms=tuple(ledger.norms),
        warnings=tuple(ledger.warnings),
        dense_chain=find_dense_chain(graph, head_node),
        channels_last=example.dim() == 4 and takes_channels_last(graph),
        model=model,
        example=example,
    )


def _require_plain_parameters(model: nn.Module) -> None:
    owners: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) in owners:
            raise UnsupportedModel(
                name, f"shares its weights with {owners[id(parameter)]}; give each layer its own"
            )
        if not parameter.requires_grad:
            raise UnsupportedModel(name, "is frozen; its gradient cannot be recovered: call requires_grad_()")
        if nn.parameter.is_lazy(parameter):
            raise UnsupportedModel(name, "has no shape yet; run the model once before")
        if not parameter.numel():
            raise UnsupportedModel(name, "has no entries; leave the layer out")
        owners[id(parameter)] = name


def _graph_of(model: nn.Module) -> fx.GraphModule:
    try:
        graph = fx.symbolic_trace(model)
    except FAILURES_OF_MODELS as error:
        raise UnsupportedModel(
            "forward",
            f"cannot be traced ({first_line(error)}); write it without control flow on data, len(), iteration over "
            "tensors and assignment to their entries",
        ) from error
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder" and node.users]
    if len(inputs) != 1:
        name = inputs[1].name if inputs else "forward"
        raise UnsupportedModel(name, "the model must have one input tensor; join several before the model")
    return graph


def _head_of(graph: fx.GraphModule) -> Node:
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    last = output.args[0]
    if not isinstance(last, Node):
        raise UnsupportedModel("output", "the model must return one tensor; return the last layer's alone")
    if last.op != "call_module" or type(graph.get_submodule(str(last.target))) is not nn.Linear:
        what, _ = _describe(graph, last)
        remedy = "end it with nn.Linear on one feature vector per sample"
        if "softmax" in what.lower():
            remedy = "a softmax belongs to the loss"
        elif last.target is nn.functional.linear:
            remedy = "a bare or derived Linear is not seen as a layer: use nn.Linear itself, inside a module"
        raise UnsupportedModel(_label(last), f"the model must end in a Linear layer, not in {what}; {remedy}")
    if len(last.users) != 1:
        raise UnsupportedModel(str(last.target), "the last layer must feed nothing but the output")
    return last


class _Walk(fx.Interpreter):
    """Runs the graph on the example and, beside it, the rules on the identifiers."""

    def __init__(self, graph: fx.GraphModule, head: Node, barrier: Barrier) -> None:
        super().__init__(graph, garbage_collect_values=False)
        self.extra_traceback = False
        self.ledger = Ledger()
        self._graph = graph
        self._head = head
        self._barrier = barrier
        self._identifiers: dict[Node, Tensor] = {}
        self._used_modules: set[str] = set()

    def run_node(self, n: Node) -> Any:
        try:
            value = super().run_node(n)
        except FAILURES_OF_MODELS as error:
            raise UnsupportedModel(_label(n), f"does not run on the example: {first_line(error)}") from error
        if n.op == "placeholder":
            if n.users:
                self._identifiers[n] = ones_like(value)
        elif n.op == "get_attr":
            self._identifiers[n] = self._free_parameter(n, value)
        elif n.op != "output" and not self._is_number(n, value):
            self._identifiers[n] = self._follow(n, value)
        return value

    def _follow(self, n: Node, value: Any) -> Tensor:
        operation, module = _describe(self._graph, n)
        step = self._step(n, value, operation, module)
        if module is not None and next(module.parameters(), None) is not None:
            if n.target in self._used_modules:
                raise step.refuse(
                    "its weights are shared: the layer is called more than once; make a second one"
                )
            self._used_modules.add(str(n.target))
        if step.is_head and step.tensor().value.dim() != 2:
            raise step.refuse(
                "the last layer must see one feature vector per sample; flatten or pool before it"
            )
        rule = self._rule(n, module)
        if rule is not None and not isinstance(value, Tensor):
            raise step.refuse(f"{operation} returns more than one tensor here")
        if rule is None:
            return self._cross_barrier(step, refusal_for(operation))
        try:
            return rule(step)
        except UnsupportedModel as error:
            if step.is_head:
                raise
            return self._cross_barrier(step, error.reason)

    def _cross_barrier(self, step: Step, reason: str) -> Tensor:
        if self._barrier == "refuse" or not isinstance(step.value, Tensor):
            raise step.refuse(reason)
        text = f"{step.name}: {reason.partition(';')[0]}; unperturbed: what goes in and out reaches clients in clear"
        self.ledger.warnings.append(text)
        for tracked in step.every_tensor():
            self.ledger.space.equate(tracked.identifiers, torch.zeros((), dtype=torch.int64))
        if step.module is not None:
            for name, parameter in step.module.named_parameters():
                self.ledger.record(f"{step.name}.{name}", parameter, None)
        return ones_like(step.value)

    def _free_parameter(self, n: Node, value: Any) -> Tensor:
        if self._barrier == "refuse" or not isinstance(value, Tensor):
            raise UnsupportedModel(
                str(n.target),
                "free parameters outside a layer cannot carry factors, and constant tensors have none; use a layer, or "
                "prepare the data before the model",
            )
        text = f"{n.target}: a free parameter; it reaches clients in clear"
        self.ledger.warnings.append(text)
        self.ledger.record(str(n.target), value, None)
        return ones_like(value)

    def _step(self, n: Node, value: Any, operation: str, module: nn.Module | None) -> Step:
        apply: Any = module if module is not None else n.target
        if n.op == "call_method":
            apply = getattr(Tensor, str(n.target))
        return Step(
            name=_label(n),
            operation=operation,
            apply=apply,
            arguments=tuple(map_arg(n.args, self._argument)),
            keywords=dict(map_arg(n.kwargs, self._argument)),
            value=value,
            ledger=self.ledger,
            module=module,
            is_head=n is self._head,
        )

    def _argument(self, n: Node) -> Any:
        value = self.env[n]
        return Tracked(value, self._identifiers[n]) if n in self._identifiers else value

    def _rule(self, n: Node, module: nn.Module | None) -> Rule | None:
        if module is not None:
            return MODULE_RULES.get(type(module))
        if n.op == "call_method":
            return METHOD_RULES.get(str(n.target))
        return FUNCTION_RULES.get(n.target) if callable(n.target) else None

    def _is_number(self, n: Node, value: Any) -> bool:
        if isinstance(value, Tensor):
            return False
        return n.target in NUMBER_FUNCTIONS or n.target in NUMBER_METHODS


def _label(n: Node) -> str:
    """What a user would look for: the path of a module, or the name of an operation in the graph."""
    return str(n.target) if n.op == "call_module" else n.name


def _describe(graph: fx.GraphModule, n: Node) -> tuple[str, nn.Module | None]:
    """The name people know an operation by, and its module if it is one."""
    if n.op == "call_module":
        module = graph.get_submodule(str(n.target))
        return type(module).__name__, module
    if n.op == "call_method":
        return str(n.target), None
    return str(getattr(n.target, "__name__", n.target)), None
