"""Files that others may read and that appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

from veilsum.roles.federation.private_files import replace_file

_PUBLIC = 0o644


def replace_public_file(path: Path, content: bytes) -> None:
    """Write a file that everyone may read in place of any earlier one."""
    replace_file(path, content, _PUBLIC)
