"""What the source files of the four folders say about themselves: names, imports, lengths."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("protocol", "transport", "roles", "simulations")


def source_files(*folders: str) -> list[Path]:
    """Relative to the root, sorted."""
    return sorted(
        path.relative_to(ROOT) for folder in folders or FOLDERS for path in (ROOT / folder).rglob("*.py")
    )


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(("veilsum", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def text_of(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(text_of(path), filename=str(path))


def imported_names(tree: ast.AST) -> Iterator[str]:
    """The full dotted names that parsed source imports, wherever in it the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno} has a relative import: name the module in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_of(path: Path) -> Iterator[str]:
    """The full dotted names a file imports."""
    return imported_names(parse(path))


def named_in_strings(tree: ast.Module) -> Iterator[str]:
    """The places in our package that strings of a file name, module and attribute, with a dot for the colon.

    What an f-string or a sum holds is read where it is a constant of the file; a name whose end is not known ends in *.
    """
    constants = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp):
            found = re.match(r"veilsum(?:[.:]\w+)*[.:]?(\*|$)", _spelled(node, constants))
            if found:
                yield found[0].replace(":", ".")


def _spelled(node: ast.expr, constants: dict[str, ast.expr], depth: int = 3) -> str:
    """A string as it reads, with * for what is known only when it runs."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_spelled(part, constants, depth) for part in parts)
        case ast.FormattedValue(value=value):
            return _spelled(value, constants, depth)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _spelled(left, constants, depth) + _spelled(right, constants, depth)
        case ast.Name(id=name) if depth and name in constants:
            return _spelled(constants[name], constants, depth - 1)
    return "*"


def used_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of whatever parsed source uses: `np.random.bytes` is numpy.random.bytes.

    What is not imported stands as it is written; `?` is the result of an expression.
    """
    imported = {
        (alias.asname or alias.name.partition(".")[0]): (
            f"{node.module}.{alias.name}"
            if isinstance(node, ast.ImportFrom)
            else (alias.name if alias.asname else alias.name.partition(".")[0])
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.lineno, _dotted(node, imported)


def _dotted(node: ast.expr, imported: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, imported)}.{node.attr}"
    return imported.get(node.id, node.id) if isinstance(node, ast.Name) else "?"


def files_of_tests() -> list[Path]:
    """The Python files under tests/, their support included, relative to the root, sorted."""
    return sorted(path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.py"))
