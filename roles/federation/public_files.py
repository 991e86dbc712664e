"""Files that others may read and that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace_public_file(path: Path, content: bytes) -> None:
    """Write a file with mode 0644 in place of any earlier one: temporary file, flush, rename, flush the folder."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except OSError:
        temporary.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
