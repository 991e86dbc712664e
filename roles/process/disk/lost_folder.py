"""What a process does and says that finds nothing readable of what it knew, or begins without it.

Who forgets silently may do a second time what it did before, so it takes the word of whoever starts the process. Where
the others give a party what it missed, that word concerns this party alone: all others go on with `--resume`.

Implements specs/guide.md, section 6.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shlex import quote

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.participation import RESTORE_SERVER
from veilsum.protocol.machines.scheme import Scheme
from veilsum.roles.process.checkpoint import CheckpointError, NothingReadable, Saved, StateFolder

NO_VOTE = (
    "what this party did in the run before is forgotten: it takes the state of the others over, and has no vote until "
    "a round that it took part in is committed; if all begin anew, the organiser signs another chain first (veilsum "
    "roster sign --new-chain)"
)
GIVEN_BACK = "no checkpoint is readable; the parties prove how far the run is, and give back what the server is to hold"


def load_or_begin_anew(
    checkpoints: StateFolder, party: PartyId, scheme: Scheme, federation: Path, warn: Callable[[str], None]
) -> Saved | None:
    """The newest checkpoint; None at a server to which the parties give all that it needs."""
    try:
        return checkpoints.load()
    except NothingReadable as lost:
        if party != SERVER:
            raise ParameterError([_alone(lost, party, scheme, federation)]) from lost
        if not scheme.has_chain:
            raise ParameterError([f"{lost.path}: {lost.problem}: {RESTORE_SERVER}"]) from lost
        warn(f"{checkpoints.folder}: {GIVEN_BACK}")
        return None
    except CheckpointError as refusal:
        raise ParameterError([str(refusal)]) from refusal


def nothing_to_resume(party: PartyId, scheme: Scheme, federation: Path) -> str:
    """What to say to a party that is to go on, and never took part or lost what it knew."""
    said = "no checkpoint to go on from: this party begins anew, and is given what it missed"
    if scheme.has_chain:
        return (
            f"{said}; if it took part before, what it did is lost with this folder: stop it and start it with --fresh, "
            f"so that it does not vote a second time; where all are launched together: {_launched(federation, party)}"
        )
    if scheme.hides_updates:
        return f"{said}; if it took part before, stop it and restore this folder from a backup"
    return said


def _launched(federation: Path, party: PartyId) -> str:
    return f"veilsum launch {quote(str(federation))} --resume --fresh-for {party}"


def _alone(lost: NothingReadable, party: PartyId, scheme: Scheme, federation: Path) -> str:
    """The remedy for one party; where its updates are hidden and nobody votes, what it forgot may matter to all."""
    if scheme.hides_updates and not scheme.has_chain:
        return str(lost)
    until = ", and has no vote until a round that it took part in is committed" if scheme.has_chain else ""
    return (
        f"{lost.path}: {lost.problem}: restore the folder from a backup, or start {party} alone with --fresh, the "
        f"others with --resume: it is given what it missed{until}; where all are launched together: "
        f"{_launched(federation, party)}"
    )
