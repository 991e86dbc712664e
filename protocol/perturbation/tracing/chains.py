"""Recognise models for which a faster way to the same gradients exists.

Implements specs/figures/perturbation-cost.md, section 1.
"""

from __future__ import annotations

from torch import fx, nn
from torch.fx.node import Node


def find_dense_chain(graph: fx.GraphModule, head: Node) -> tuple[str, ...] | None:
    """The names of the linear layers if the body is flatten, then Linear and ReLU in turn."""
    names: list[str] = []
    node = head.args[0]
    flattened = False
    while isinstance(node, Node) and node.op == "call_module" and len(node.users) == 1:
        module = graph.get_submodule(str(node.target))
        before = node.args[0]
        if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
            flattened = True
        elif type(module) is nn.ReLU and not flattened:
            if not (isinstance(before, Node) and _is_linear(graph, before)) or len(before.users) != 1:
                return None
            names.insert(0, str(before.target))
            before = before.args[0]
        else:
            return None
        node = before
    if not (isinstance(node, Node) and node.op == "placeholder" and len(node.users) == 1):
        return None
    return tuple(names)


def takes_channels_last(graph: fx.GraphModule) -> bool:
    """Convolutions are faster with channels last in memory.

    But `view` insists on the usual order, and dropout draws its mask in the order of memory, so that the same
    generator would drop other units than in plain training.
    """
    nodes = list(graph.graph.nodes)
    modules = [graph.get_submodule(str(node.target)) for node in nodes if node.op == "call_module"]
    calls = [
        str(getattr(node.target, "__name__", node.target)) for node in nodes if node.op.startswith("call_")
    ]
    names = [*calls, *(type(module).__name__ for module in modules)]
    sensitive = any(name == "view" or "dropout" in name.lower() for name in names)
    return not sensitive and any(isinstance(module, nn.Conv2d) for module in modules)


def _is_linear(graph: fx.GraphModule, node: Node) -> bool:
    return node.op == "call_module" and type(graph.get_submodule(str(node.target))) is nn.Linear
