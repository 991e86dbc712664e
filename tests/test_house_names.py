"""No name of a scheme, defence or attack decides anything outside its own package: behaviour is asked of the object.

A name may be said: in help, in messages, in records of what ran, as the value of a setting. It decides where it is
compared, looked up, matched or listed in a constant that others compare with; a scheme from outside, which has
another name, would then be treated as something that it is not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import veilsum.protocol.schemes  # registers the built-in schemes
from tests.support.house import Trees, made_up
from tests.support.sources import parse, source_files
from veilsum.protocol.schemes.registry import scheme_names
from veilsum.roles.learning.defences.registry import BUILT_IN
from veilsum.simulations.attacks.registry import ATTACKS

LOOKUPS = ("startswith", "endswith", "get", "index", "pop")
# Names of attacks that are also ordinary words of the code: keys of settings, of records and of checkpoints.
ORDINARY_WORDS = {"model", "perturbation"}


@dataclass(frozen=True)
class Kind:
    """Names of one kind, who may decide by them, and who may list them without deciding."""

    names: frozenset[str]
    owners: tuple[str, ...]
    listed_in: tuple[str, ...] = ()


KINDS = {
    "scheme": Kind(
        frozenset(scheme_names()),
        ("protocol/schemes/",),
        (
            "simulations/audit/sweeps/",
        ),  # an experiment lists the schemes that it runs, as a configuration file does
    ),
    "defence": Kind(frozenset(BUILT_IN), ("roles/learning/defences/",)),
    "attack": Kind(
        frozenset(ATTACKS) - ORDINARY_WORDS,
        ("simulations/attacks/",),
        ("roles/learning/defences/",),  # a defence lists the attacks that try it
    ),
}


def texts(node: ast.AST | None, constants: dict[str, str]) -> Iterator[str]:
    """The string that an expression is or that its constant holds, or those of the tuple, list or set that it is."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Name) and node.id in constants:
        yield constants[node.id]
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for element in node.elts:
            yield from texts(element, constants)


def constants_of(tree: ast.Module) -> dict[str, str]:
    """The strings that a module gives a name: `BASE = "plain"`."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def deciding(node: ast.AST) -> list[ast.expr | None]:
    """The parts of a piece of syntax whose value decides what happens."""
    match node:
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case ast.MatchValue(value=value) | ast.Subscript(slice=value):
            return [value]
        case ast.Dict(keys=keys):
            return list(keys)
        case ast.Call(func=ast.Attribute(attr=attr), args=arguments) if attr in LOOKUPS:
            return list(arguments)
    return []


def listing(node: ast.AST) -> list[ast.expr | None]:
    """What is assigned, if it is more than one string: a list that others may compare with."""
    match node:
        case ast.Assign(value=value) | ast.AnnAssign(value=value) if not isinstance(value, ast.Constant):
            return [value]
    return []


def decisions(tree: ast.Module, names: Iterable[str], *, lists: bool = True) -> Iterator[str]:
    """Line and name of each place where a name decides, and unless they are allowed where names are listed."""
    known, constants = set(names), constants_of(tree)
    for node in ast.walk(tree):
        for part in [*deciding(node), *(listing(node) if lists else [])]:
            yield from (f"{part.lineno}: {text}" for text in texts(part, constants) if part and text in known)


def offenders(trees: Trees, kinds: dict[str, Kind]) -> list[str]:
    """Each place where a name of one of the kinds decides outside its owners."""
    return [
        f"{path}:{found} ({called})"
        for called, kind in kinds.items()
        for path, tree in trees.items()
        if not str(path).startswith(kind.owners)
        for found in decisions(tree, kind.names, lists=not str(path).startswith(kind.listed_in))
    ]


def test_no_name_of_a_scheme_defence_or_attack_decides_outside_its_package() -> None:
    assert not offenders({path: parse(path) for path in source_files()}, KINDS)


def test_the_names_are_those_that_are_registered() -> None:
    assert veilsum.protocol.schemes
    assert {"plain", "masked", "ampc", "perturbed"} <= KINDS["scheme"].names
    assert {"dp", "spn"} <= KINDS["defence"].names
    assert {"dlg", "mia-loss", "noise-line"} <= KINDS["attack"].names


def test_every_place_that_is_left_alone_exists() -> None:
    places = [Path(place) for kind in KINDS.values() for place in (*kind.owners, *kind.listed_in)]
    files = source_files()
    assert not [place for place in places if not any(path.is_relative_to(place) for path in files)]
    assert set(ATTACKS) >= ORDINARY_WORDS


def test_a_name_that_decides_is_found_and_one_that_is_said_is_not() -> None:
    source = """
if scheme == "ampc": ...
if scheme in ("x", "ampc"): ...
match scheme:
    case "ampc": ...
table = {"ampc": 1}
table["ampc"]
table.get("ampc")
scheme.startswith("ampc")
SECURE = ("ampc", "x")
print("ampc"); run(scheme="ampc"); default = "ampc"
BASE = "ampc"
if scheme == BASE: ...
"""
    found = list(decisions(ast.parse(source), {"ampc"}))
    assert {int(one.partition(":")[0]) for one in found} == {2, 3, 5, 6, 7, 8, 9, 10, 13}
    assert set(found) - set(decisions(ast.parse(source), {"ampc"}, lists=False)) == {"10: ampc"}


def test_an_owner_of_one_kind_of_name_owns_no_other() -> None:
    asks = 'if scheme == "ampc": ...\nif defence == "dp": ...\nif attack == "dlg": ...'
    house = made_up(
        protocol__schemes__ampc=asks,
        roles__learning__defences__dp=asks,
        simulations__attacks__dlg=asks,
        simulations__audit__sweeps__all=asks + '\nSCHEMES = ("ampc", "plain")',
    )
    assert offenders(house, KINDS) == [
        "roles/learning/defences/dp.py:1: ampc (scheme)",
        "simulations/attacks/dlg.py:1: ampc (scheme)",
        "simulations/audit/sweeps/all.py:1: ampc (scheme)",
        "protocol/schemes/ampc.py:2: dp (defence)",
        "simulations/attacks/dlg.py:2: dp (defence)",
        "simulations/audit/sweeps/all.py:2: dp (defence)",
        "protocol/schemes/ampc.py:3: dlg (attack)",
        "roles/learning/defences/dp.py:3: dlg (attack)",
        "simulations/audit/sweeps/all.py:3: dlg (attack)",
    ]
