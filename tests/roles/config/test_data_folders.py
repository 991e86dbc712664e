"""One folder or one for each party: what a text means, and what does not fit the parties is refused."""

from __future__ import annotations

from pathlib import Path
from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.protocol.errors import ParameterError
from veilsum.roles.cli.main import main
from veilsum.roles.config.data_folders import DataFolders
from veilsum.roles.config.federation_config import FederationConfig

NAMES = st.text(ascii_lowercase, min_size=1, max_size=4)
FOLDERS = st.text(f"{ascii_lowercase}/=. _-", min_size=1).map(lambda text: Path(text.strip() or "x"))


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("data", "data"),
        ("a,b", "a,b"),
        ("./alice=x", "alice=x"),
        ("/alice=x,bob=y", "/alice=x,bob=y"),
        ("alice=a,bob=b", {"alice": "a", "bob": "b"}),
        ("alice=a, bob=b", {"alice": "a", "bob": "b"}),
        ("alice=a=1,2", {"alice": "a=1,2"}),
        ("alice=a,b=c", {"alice": "a", "b": "c"}),
    ],
)
def test_a_text_is_a_list_if_a_name_stands_before_its_first_equals_sign(
    text: str, means: str | dict[str, str]
) -> None:
    read = DataFolders.parse(text)
    if isinstance(means, str):
        assert read == DataFolders(Path(means))
    else:
        assert read == DataFolders(None, {name: Path(folder) for name, folder in means.items()})
    assert DataFolders.parse(str(read)) == read


@given(st.dictionaries(NAMES, FOLDERS, min_size=1, max_size=3))
def test_folders_of_parties_read_back_as_they_were_written(folders: dict[str, Path]) -> None:
    written = DataFolders(None, folders)
    assert DataFolders.parse(str(written)) == written


@pytest.mark.parametrize(("text", "says"), [("alice=a,alice=b", "alice two"), ("alice=,bob=b", "alice =")])
def test_a_party_with_two_folders_or_none_is_refused(text: str, says: str) -> None:
    with refusal(ParameterError, *says.split()):
        DataFolders.parse(text)


def test_a_configuration_takes_folders_as_a_path_and_by_name_and_refuses_what_a_text_cannot_say(
    tmp_path: Path,
) -> None:
    assert FederationConfig(data=Path("a=b")).data_folders == DataFolders(Path("a=b"))  # type: ignore[arg-type] # a path
    by_name = {"p1": tmp_path, "p2": "x"}
    assert FederationConfig(data=by_name).data == f"p1={tmp_path},p2=x"  # type: ignore[arg-type] # a mapping
    with refusal(ParameterError, "commas"):
        FederationConfig(data={"p1": "a,p2=b"})  # type: ignore[arg-type] # a mapping


def test_folders_in_a_file_are_relative_to_it_and_those_on_a_command_line_to_the_current_folder(
    tmp_path: Path,
) -> None:
    (tmp_path / "federation.toml").write_text('[task]\ndata = "p1=a,p2=/b"\n')
    config = FederationConfig.from_toml(tmp_path / "federation.toml")
    assert config.data_folders.of("p1") == tmp_path / "a"
    assert config.data_folders.of("p2") == Path("/b")
    assert FederationConfig(data="p1=a").data_folders.of("p1") == Path("a")


def test_what_is_written_for_another_folder_leads_to_the_same_places(tmp_path: Path) -> None:
    folders = DataFolders(None, {"a": tmp_path / "fed/data", "b": tmp_path / "other"})
    seen = folders.seen_from(tmp_path / "fed")
    assert seen.of_party == {"a": Path("data"), "b": tmp_path / "other"}
    assert seen.below(tmp_path / "fed") == folders


@pytest.mark.parametrize(
    ("data", "split", "says"),
    [
        ("alice=D,bob=D,eve=D", "own", "eve alice bob"),
        ("alice=D", "own", "bob"),
        ("alice=D,bob=D/absent", "own", "absent bob"),
        ("alice=D,bob=D", "iid", "iid own"),
        ("D", "own", "--data alice=FOLDER,bob=FOLDER iid"),
        (None, "own", "--data alice=FOLDER,bob=FOLDER iid"),
    ],
)
def test_what_does_not_fit_the_parties_or_the_split_is_refused_by_name(
    tmp_path: Path, data: str | None, split: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = None if data is None else data.replace("D", str(tmp_path))
    config = FederationConfig(parties=("alice", "bob"), split=split, data=text)
    with refusal(ParameterError, *says.split()):
        config.require_data()
    words = ["simulate", "--parties", "alice,bob", "--split", split, *(["--data", text] if text else [])]
    assert main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_party_without_an_entry_is_told_so() -> None:
    with refusal(ParameterError, "bob", "bob=FOLDER"):
        DataFolders.parse("alice=a").of("bob")
