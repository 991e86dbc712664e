"""The rules of the house as functions of source: each returns what breaks it, so that each can be shown to fail.

A rule takes parsed files, by their path relative to the root, and not the checkout: a test of the rule hands it
a few made-up lines instead.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.support.sources import imported_names, module_name, named_in_strings

Trees = Mapping[Path, ast.Module]

# Later rooms may import earlier ones. The modules that lie in protocol/ itself are the first room.
ROOMS_OF_THE_PROTOCOL = (
    *("crypto", "numbers", "graphs", "wire", "agreed"),
    *("perturbation", "chain", "machines", "secure_sum", "schemes"),
)


def made_up(**sources: str) -> dict[Path, ast.Module]:
    """A small house for a test of a rule: `protocol__crypto__kdf="..."` is protocol/crypto/kdf.py."""
    return {Path(name.replace("__", "/") + ".py"): ast.parse(text) for name, text in sources.items()}


def crowded(paths: Iterable[Path], most: int) -> dict[str, int]:
    """Folders with more files than allowed, not counting `__init__`."""
    counts = Counter(str(path.parent) for path in paths if path.name != "__init__.py")
    return {folder: count for folder, count in counts.items() if count > most}


def long_functions(trees: Trees, most: int) -> dict[str, int]:
    lengths = {
        f"{path}:{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return {name: lines for name, lines in lengths.items() if lines > most}


def shared_class_names(trees: Trees) -> dict[str, list[str]]:
    """Names of classes that one top-level folder defines twice, also inside a function, a class or a condition."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes[f"{path.parts[0]}: {node.name}"].append(str(path))
    return {name: found for name, found in homes.items() if len(found) > 1}


def imported_modules(tree: ast.Module, known: set[str]) -> set[str]:
    """The modules of the house that a file imports, wherever in it the import stands, for types and by strings too.

    `from package import thing` means the module package.thing where there is one, and else the package itself. A string
    whose end is made up only when it runs may mean every module that begins so.
    """
    names = {*imported_names(tree), *(name for name in named_in_strings(tree) if not name.endswith("*"))}
    heads = tuple(name[:-1] for name in named_in_strings(tree) if name.endswith("*"))
    return {found for name in names if (found := _module_in(name, known))} | {
        module for module in known if heads and module.startswith(heads)
    }


def _module_in(name: str, known: set[str]) -> str:
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def import_graph(trees: Trees) -> dict[str, set[str]]:
    known = {module_name(path) for path in trees}
    return {module_name(path): imported_modules(tree, known) for path, tree in trees.items()}


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other, by way of others or directly: what cannot be peeled off."""
    left = {module: set(targets) - {module} for module, targets in graph.items()}
    while done := [module for module, targets in left.items() if not targets & left.keys()]:
        for module in done:
            del left[module]
    groups = {frozenset(_around(module, left)) for module in left}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _around(module: str, graph: Mapping[str, set[str]]) -> set[str]:
    """The modules that this one reaches and that reach it."""
    return {module} | {other for other in _reached(module, graph) if module in _reached(other, graph)}


def _reached(module: str, graph: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [module]
    while waiting:
        fresh = graph.get(waiting.pop(), set()) - found
        found |= fresh
        waiting += fresh
    return found


def backward_imports(trees: Trees) -> Iterator[str]:
    """Imports of the protocol that go from an earlier room to a later one."""
    for module, targets in import_graph(trees).items():
        for target in sorted(targets):
            if _room(target) > _room(module):
                yield f"{module} imports {target}"


def _room(module: str) -> int:
    room = [*module.split("."), "", ""][2]
    return ROOMS_OF_THE_PROTOCOL.index(room) + 1 if room in ROOMS_OF_THE_PROTOCOL else 0


def repeated_lines(sources: Mapping[str, str], length: int) -> list[str]:
    """Places where as many lines in a row stand that stand elsewhere too, each with the first place.

    Compared are lines as they stand, stripped, without blank lines, comments, imports and docstrings.
    """
    first: dict[tuple[str, ...], str] = {}
    found: list[str] = []
    for name, source in sources.items():
        lines = list(_written(source))
        last = -length
        for start in range(len(lines) - length + 1):
            block = tuple(text for _, text in lines[start : start + length])
            place = f"{name}:{lines[start][0]}"
            earlier = first.setdefault(block, place)
            if earlier != place and start >= last + length:
                found.append(f"{place} repeats {earlier}")
                last = start
    return found


def _written(source: str) -> Iterator[tuple[int, str]]:
    """Line by line, with its number: stripped, without blank lines, comments, imports and docstrings."""
    left_out = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt) and (isinstance(node, ast.Import | ast.ImportFrom) or _is_text(node))
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    for number, line in enumerate(source.splitlines(), 1):
        text = line.strip()
        if text and not text.startswith("#") and number not in left_out:
            yield number, text


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
