"""Nothing readable in a folder: the server of a chain is given it, and a party's advice costs the others nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.refusals import refusal
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.schemes.registry import find_scheme
from veilsum.roles.process.checkpoint import StateFolder
from veilsum.roles.process.disk.lost_folder import load_or_begin_anew, nothing_to_resume
from veilsum.roles.process.persistent_state import PersistentState

P1 = PartyId("p1")
SCHEMES = ("plain", "perturbed", "bilateral", "masked", "mpc", "ampc")


def unreadable(path: Path, name: PartyId) -> StateFolder:
    """A folder with a checkpoint whose model is damaged, and its copy, too."""
    folder = StateFolder(path, name, bytes(32))
    folder.acquire()
    folder.save(PersistentState(1, np.ones(8, dtype="<f4")))
    folder.release()
    for file in path.glob("model-*"):
        file.write_bytes(bytes([file.read_bytes()[0] ^ 1, *file.read_bytes()[1:]]))
    return folder


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_party_is_refused_and_its_advice_is_about_itself_alone_where_the_others_give_it_what_it_missed(
    tmp_path: Path, scheme: str
) -> None:
    """All but bilateral, whose masked sums nobody votes on: what one party forgets may matter to the others there."""
    folder = unreadable(tmp_path / "p1", P1)
    before, told = contents(folder.folder), list[str]()
    alone = () if scheme == "bilateral" else ("p1", "--resume", "--fresh-for", "fed")
    with refusal(ParameterError, folder.folder, "backup", "--fresh", *alone) as refused:
        load_or_begin_anew(folder, P1, find_scheme(scheme), Path("fed"), told.append)
    assert ("--fresh-for" in str(refused.value)) == (scheme != "bilateral")
    assert ("vote" in str(refused.value)) == find_scheme(scheme).has_chain
    assert (contents(folder.folder), told) == (before, [])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_who_has_no_checkpoint_is_told_to_forget_only_where_votes_count_and_then_for_itself_alone(
    scheme: str,
) -> None:
    said, kind = nothing_to_resume(P1, find_scheme(scheme), Path("a fed")), find_scheme(scheme)
    assert ("--fresh, so that it does not vote" in said) == kind.has_chain
    assert ("launch 'a fed' --resume --fresh-for p1" in said) == kind.has_chain
    assert ("backup" in said) == (scheme == "bilateral")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_server_of_a_chain_begins_anew_and_any_other_is_refused(tmp_path: Path, scheme: str) -> None:
    folder, told = unreadable(tmp_path / "server", SERVER), list[str]()
    if find_scheme(scheme).has_chain:
        assert load_or_begin_anew(folder, SERVER, find_scheme(scheme), Path("fed"), told.append) is None
        assert len(told) == 1
        return
    with refusal(ParameterError, folder.folder, "backup", "--fresh") as refused:
        load_or_begin_anew(folder, SERVER, find_scheme(scheme), Path("fed"), told.append)
    assert "alone" not in str(refused.value)


def test_what_is_readable_is_what_there_was(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, P1, bytes(32))
    folder.acquire()
    folder.save(PersistentState(1, np.ones(8, dtype="<f4")))
    saved = load_or_begin_anew(folder, P1, find_scheme("masked"), Path("fed"), [].append)
    assert saved is not None
    assert (saved.state.rounds_done, saved.passed_over) == (1, [])
