"""No name of a scheme or a defence decides anything outside its own package: behaviour is asked of the object.

A name may be said: in help, in messages, in records of what ran, as the value of a setting. It decides where it is
compared, looked up, matched or listed in a constant that others compare with; a scheme from outside, which has
another name, would then be treated as something that it is not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import veilsum.protocol.schemes  # registers the built-in schemes
from tests.support.sources import parse, source_files
from veilsum.protocol.schemes.registry import scheme_names
from veilsum.roles.learning.defences.registry import BUILT_IN

NAMES = {*scheme_names(), *BUILT_IN}
LOOKUPS = ("startswith", "endswith", "get", "index", "pop")
# The packages of schemes and defences own their names. A sweep is one experiment of a paper: which schemes and
# defences it runs is its data, as in a configuration file, and decides nothing for any other run.
OWNERS = ("protocol/schemes/", "roles/learning/defences/", "simulations/audit/sweeps/")
# Being replaced by questions to the scheme; the rule then holds without exception.
UNDER_WAY = {
    *("simulations/audit/fits.py", "simulations/audit/request.py", "simulations/run/simulate.py"),
    *(
        f"simulations/audit/rows/{name}.py"
        for name in ("generators", "gradient", "members", "perturbation", "seeds")
    ),
}


def texts(node: ast.AST | None) -> Iterator[str]:
    """The string that an expression is, or those of the tuple, list or set that it is."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for element in node.elts:
            yield from texts(element)


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
        case ast.Assign(value=value) | ast.AnnAssign(value=value) if not isinstance(value, ast.Constant):
            return [value]
    return []


def decisions(tree: ast.AST, names: set[str]) -> Iterator[str]:
    """Line and name of each place where a name decides."""
    for node in ast.walk(tree):
        for part in deciding(node):
            yield from (f"{part.lineno}: {text}" for text in texts(part) if part and text in names)


def offenders(path: Path) -> list[str]:
    return [] if str(path).startswith(OWNERS) else list(decisions(parse(path), NAMES))


def test_no_name_of_a_scheme_or_defence_decides_outside_its_package() -> None:
    found = {str(path): offenders(path) for path in source_files()}
    assert not {path: names for path, names in found.items() if names and path not in UNDER_WAY}


def test_the_names_are_those_that_are_registered() -> None:
    assert veilsum.protocol.schemes
    assert {"plain", "masked", "ampc", "perturbed", "dp", "spn"} <= NAMES


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
"""
    lines = {int(found.partition(":")[0]) for found in decisions(ast.parse(source), {"ampc"})}
    assert lines == {2, 3, 5, 6, 7, 8, 9, 10}
