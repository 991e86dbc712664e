"""What the source files of the four folders say about themselves: names, imports, lengths."""

from __future__ import annotations

import ast
import functools
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


def called_names(tree: ast.AST) -> Iterator[str]:
    """The bare names that parsed source calls, such as open or print."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def files_of_tests() -> list[Path]:
    """The Python files under tests/, their support included, relative to the root, sorted."""
    return sorted(path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.py"))
