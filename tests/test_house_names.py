"""No name of a scheme, defence or attack stands outside its own package: behaviour is asked of the object.

A scheme from outside has another name, and would be treated as something that it is not wherever a name decides. So
every string that is such a name is found, and every constant of an owner that holds one, whatever is done with it; a
longer text may say it. What stays is listed with its reason, and leaves the list when it is gone.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import veilsum.protocol.schemes  # registers the built-in schemes
from tests.support.house import Trees, made_up
from tests.support.sources import module_name, parse, source_files, used_names
from veilsum.protocol.schemes.registry import find_scheme, scheme_names
from veilsum.roles.learning.defences.registry import BUILT_IN
from veilsum.simulations.attacks.registry import ATTACKS
from veilsum.simulations.commands.audit import names

ORDINARY_WORDS = {"model", "perturbation"}
"""Names of attacks that are also words of the code: keys of settings, of records and of checkpoints."""


@dataclass(frozen=True)
class Kind:
    """Names of one kind, and the folder that owns them."""

    names: frozenset[str]
    owner: str


KINDS = (
    Kind(
        frozenset(
            name for name in scheme_names() if type(find_scheme(name)).__module__.startswith("veilsum.")
        ),
        "protocol/schemes",
    ),
    Kind(frozenset(BUILT_IN), "roles/learning/defences"),
    Kind(frozenset(ATTACKS) - ORDINARY_WORDS, "simulations/attacks"),
)

# File, the names that stay in it, and why.
STAYS = (
    ("roles/config/values.py", "ampc", "the default of a setting"),
    ("roles/config/known_names.py", "plain masked mpc ampc perturbed bilateral", "what shells complete"),
    ("roles/config/known_names.py", "dp ppdl spn sketch", "what shells complete"),
    ("simulations/examples/compare_schemes.py", "plain mpc ampc masked", "what the example compares"),
    ("simulations/examples/own_task.py", "masked", "what the example runs"),
    ("simulations/examples/lost_parties.py", "masked", "what the example runs"),
    ("simulations/examples/own_defence.py", "masked plain", "what the example runs"),
    ("simulations/examples/property_test.py", "masked", "what the example tests"),
    (
        "simulations/commands/audit/names.py",
        " ".join(set(names.ATTACKS) - ORDINARY_WORDS),
        "what shells complete",
    ),
    ("roles/commands/prepare/new.py", "masked", "a default of the command line"),
    ("simulations/commands/audit/run.py", "plain idlg", "defaults of the command line"),
    ("simulations/commands/bench/rounds.py", "masked", "a default of the command line"),
    ("simulations/commands/bench/launch.py", "ampc", "a default of the command line"),
    ("simulations/commands/bench/__init__.py", "perturbed", "what the sub-command is called"),
    ("simulations/commands/simulate.py", "plain", "what --compare may be given"),
    ("simulations/run/simulate.py", "plain", "what --compare may be given"),
    ("protocol/perturbation/tracing/plan.py", "perturbed", "the word, of a parameter in a report"),
    ("simulations/benchmarks/launched.py", "ampc", "what the benchmark measures"),
    ("simulations/docs/walk.py", "masked ampc", "the rounds that the page shows"),
    ("simulations/testing/stateful.py", "plain", "a default that each test replaces"),
    ("simulations/audit/request.py", "plain", "the baseline that others are compared with"),
    ("simulations/audit/request.py", "idlg", "what a stage that every attack shares is asked for with"),
    ("simulations/audit/sweeps/everything.py", "plain masked mpc ampc", "what the experiment runs"),
    ("simulations/benchmarks/rounds.py", "masked", "what a limit is asked of"),
    (
        "simulations/audit/sweeps/everything.py",
        "imprint trap-weights sums-at-one-model sums-over-rounds",
        "what it runs",
    ),
    ("simulations/audit/sweeps/everything.py", "analytic dlg idlg inverting generative gmi", "what it runs"),
    (
        "simulations/audit/sweeps/everything.py",
        "ampc-coalition mia-loss mia-network mia-shadow",
        "what it runs",
    ),
    (
        "simulations/audit/sweeps/perturbed_models.py",
        "perturbed bilateral ampc idlg",
        "what the experiment runs",
    ),
    (
        "simulations/audit/sweeps/perturbed_models.py",
        "noise-line noise-exchange noise-softmax",
        "what it runs",
    ),
    (
        "simulations/audit/sweeps/perturbed_models.py",
        "noise-data-free noise-factors noise-signs",
        "what it runs",
    ),
    ("simulations/audit/sweeps/perturbed_models.py", "noise-membership noise-shared-mask", "what it runs"),
    ("simulations/audit/sweeps/perturbed_models.py", "seeds-reused seeds-weak", "what it runs"),
    ("simulations/audit/sweeps/ppc.py", "plain idlg", "what the experiment runs"),
    ("simulations/audit/sweeps/ppc_points.py", "dlg", "the attack that knows of no defence"),
    ("simulations/audit/sweeps/sweeps.py", "plain masked idlg inverting", "what the experiment runs"),
    ("simulations/attacks/model/ampc_coalition.py", "ampc", "what the attack is made for"),
    ("simulations/attacks/perturbation/kinds.py", "perturbed", "what the attacks are made for"),
    ("simulations/attacks/perturbation/shared_mask.py", "bilateral", "what the attack is made for"),
    ("simulations/attacks/rounds/seeds.py", "ampc", "what the attack is made for"),
    ("simulations/attacks/gradient/ppdl.py", "ppdl", "what the attack is made for"),
    ("simulations/attacks/gradient/spn.py", "spn", "what the attack is made for"),
    ("simulations/attacks/rounds/repeated.py", "dp sketch", "what the attacks are made for"),
    ("roles/learning/defences/defence.py", "idlg", "the attack that tries a defence which names none"),
    ("roles/learning/defences/dp/settings.py", "idlg dp-averaging", "the attacks that try the defence"),
    ("roles/learning/defences/ppdl/settings.py", "idlg ppdl-adaptive", "the attacks that try the defence"),
    ("roles/learning/defences/sketch/settings.py", "sketch-rounds", "the attack that tries the defence"),
    ("roles/learning/defences/spn/settings.py", "dlg idlg spn-adaptive", "the attacks that try the defence"),
)


def named(tree: ast.Module, kind: Kind) -> Iterator[tuple[int, str]]:
    """Line and name, for each string and keyword that is one and each constant of the owner that holds one."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if text in kind.names:
                yield node.lineno, text
            case ast.keyword(arg=str(text)) if text in kind.names:
                yield node.value.lineno, text
    for line, dotted in used_names(tree):
        if dotted.startswith(module_name(Path(kind.owner))) and (value := held_by(dotted)) in kind.names:
            yield line, value


def held_by(dotted: str) -> str:
    """The string that a constant or a class attribute of ours holds, by its full name; else nothing."""
    module, rest = dotted, ""
    while module:
        try:
            value: object = importlib.import_module(module)
        except ImportError:
            module, _, last = module.rpartition(".")
            rest = f"{last}.{rest}" if rest else last
            continue
        for part in rest.split("."):
            value = getattr(value, part, None)
        return value if isinstance(value, str) else ""
    return ""


def strangers(trees: Trees) -> dict[tuple[str, str], list[int]]:
    """File and name, with its lines, of every name outside its owner."""
    found: dict[tuple[str, str], list[int]] = {}
    for path, tree in trees.items():
        for kind in KINDS:
            if not path.is_relative_to(kind.owner):
                for line, name in named(tree, kind):
                    found.setdefault((str(path), name), []).append(line)
    return found


def test_a_name_stands_outside_its_package_only_where_it_is_said_why() -> None:
    """And what is said is still there."""
    listed = {(file, name) for file, text, _ in STAYS for name in text.split()}
    found = strangers({path: parse(path) for path in source_files()})
    assert {place: lines for place, lines in found.items() if place not in listed} == {}
    assert listed - found.keys() == set()


def test_the_names_are_those_that_are_registered() -> None:
    assert veilsum.protocol.schemes
    schemes, defences, attacks = (kind.names for kind in KINDS)
    assert {"plain", "masked", "mpc", "ampc", "perturbed", "bilateral"} <= schemes
    assert {"dp", "ppdl", "spn", "sketch"} <= defences
    assert {"dlg", "mia-loss", "noise-line"} <= attacks
    assert set(ATTACKS) >= ORDINARY_WORDS


@pytest.mark.parametrize(
    "line",
    [
        'if scheme == "ampc": ...',
        'if scheme in ("x", "ampc"): ...',
        'match scheme:\n    case "ampc": ...',
        'table = {"ampc": 1}',
        'table["ampc"]',
        'table.get("ampc")',
        'scheme.count("ampc")',
        'scheme.removeprefix("ampc")',
        'BASE = "ampc"',
        'BASE: str = "ampc"',
        'def f():\n    base = "ampc"',
        'class A(StrEnum):\n    AMPC = "ampc"',
        'frozenset({"ampc"})',
        'set(("ampc",))',
        "dict(ampc=1)",
        'def f(scheme="ampc"): ...',
        "from veilsum.protocol.schemes.ampc import Ampc\nif scheme == Ampc.name: ...",
        "from veilsum.protocol.schemes import ampc\nif scheme == ampc.Ampc.name: ...",
    ],
)
def test_a_name_is_found_wherever_it_stands(line: str) -> None:
    assert strangers(made_up(roles__a=line)).keys() == {("roles/a.py", "ampc")}
    assert not strangers(made_up(protocol__schemes__ampc__server=line))


@pytest.mark.parametrize(
    "line",
    [
        '"""About ampc."""',
        'print("ampc needs four parties", f"{scheme} is not ampc")',
        "if scheme.name == other.name: ...",
        "from veilsum.protocol.schemes.ampc import Ampc\nfind(Ampc)",
    ],
)
def test_a_text_may_say_a_name(line: str) -> None:
    assert not strangers(made_up(roles__a=line))


def test_an_owner_of_one_kind_of_name_owns_no_other() -> None:
    names = 'run("ampc", "dp", "dlg")'
    house = made_up(
        protocol__schemes__ampc=names, roles__learning__defences__dp=names, simulations__attacks__dlg=names
    )
    assert strangers(house).keys() == {
        *(("protocol/schemes/ampc.py", name) for name in ("dp", "dlg")),
        *(("roles/learning/defences/dp.py", name) for name in ("ampc", "dlg")),
        *(("simulations/attacks/dlg.py", name) for name in ("ampc", "dp")),
    }
