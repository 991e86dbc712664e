"""A note in a party's state folder that says that it never took part.

A party that is to go on and finds no checkpoint has either never begun, or lost its state and may vote a second time
(specs/guide.md, section 6). The one who makes its keys leaves a note in its state folder, and its first start takes the
note away before anything of the run is written. Rejected: a note that says that it took part, which is lost with the
folder that it speaks of. Whoever restores a copy of before the first start has the note, too: so it tells the moment at
which a file beside it came to its disk, which no copy can keep, and whose keys were made then.
"""

from __future__ import annotations

from pathlib import Path

from veilsum.protocol.crypto.identity import PublicIdentity
from veilsum.roles.federation.private_files import flush_folder, replace_private_file

NOTE = "never-took-part"
_MADE = "made"
"""The file beside it."""


def note_unbegun(folder: Path, party: PublicIdentity) -> None:
    """Say that the party of this state folder has just got these keys."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_private_file(folder / _MADE, b"")
    replace_private_file(folder / NOTE, _note(folder, party))


def is_unbegun(folder: Path, party: PublicIdentity) -> bool:
    """Whether it is known that the party with these keys never took part."""
    try:
        return (folder / NOTE).read_bytes() == _note(folder, party)
    except OSError:
        return False


def begin(folder: Path) -> None:
    """From now on the party has taken part; returns when that is on disk."""
    if (folder / NOTE).exists():
        (folder / NOTE).unlink()
        (folder / _MADE).unlink(missing_ok=True)
        flush_folder(folder)


def _note(folder: Path, party: PublicIdentity) -> bytes:
    return f"{(folder / _MADE).stat().st_ctime_ns} {party.fingerprint}\n".encode()
