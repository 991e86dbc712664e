"""The guide's ways to a federation, run as they are printed: on one machine, and four organisations in four folders."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.broker import free_port
from tests.support.sites import SECONDS, Site, commands_of, done
from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.federation.folder import load_federation
from veilsum.roles.process.held_model import held_model

GUIDE = Path(__file__).parents[3] / "specs" / "guide.md"
PARTIES = ("alice", "bob", "carol")
FINGERPRINT = re.compile(r"(?:[0-9a-f]{4}-){7}[0-9a-f]{4}")
ONE_MACHINE = ("## 2. One machine", "## 3. Three machines")
QUICK = ("--rounds", "2", "--local-epochs", "1", "--opening-s", "20", "--patience-s", "700")
"""What the test adds to the page's own words: two short rounds, and patience with a busy machine."""


class Walk:
    """The steps of a section; what its text says is carried from one machine to another, the tests carry."""

    def __init__(self, folder: Path, section: str) -> None:
        self.steps = section.split("#### Step ")[1:] or [section]
        self.port = str(free_port())
        self.sites = {name: Site(folder / name, number) for number, name in enumerate(PARTIES)}
        self.sites |= {name: Site(folder / name) for name in ("office", "broker")}
        self.fingerprint = ""

    def words(self, words: list[str], site: str) -> list[str]:
        """A command as this machine types it: with its own name, data and organiser's fingerprint."""
        own = {
            "alice": site,
            "broker.example.org": "localhost",
            "office.example.org": "localhost",
            "/data/ecg": "data",
        }
        text = "\n".join(words)
        for printed, here in own.items():
            text = text.replace(printed, here) if not printed.startswith("alice") or site in PARTIES else text
        if self.fingerprint:
            text = FINGERPRINT.sub(self.fingerprint, text)
        added = (*QUICK, "--broker-port", self.port) if words[1] == "init" else ()
        return [*text.split("\n"), *added]

    def commands(self, step: int) -> Iterator[tuple[str, list[str]]]:
        """Every command of a step; what Alice types, and what the office types about her, goes for each party."""
        for site, words in commands_of(self.steps[step]):
            if site == "alice":
                yield from ((name, self.words(words, name)) for name in PARTIES)
            elif any("alice" in word.split("/") for word in words):  # what comes from each by post
                yield from ((site, [word.replace("alice", name) for word in words]) for name in PARTIES)
            else:
                yield site, self.words(words, site)


def section(begin: str, end: str) -> str:
    text = GUIDE.read_text()
    return text[text.index(begin) : text.index(end)]


def one_machine() -> list[list[str]]:
    """Every command that section 2 shows, in a block or in a sentence."""
    shown = re.findall(r"^veilsum .*$|`veilsum [^`]*`", section(*ONE_MACHINE), re.MULTILINE)
    return [shlex.split(line.strip("`")) for line in shown]


@contextlib.contextmanager
def walking(walk: Walk) -> Iterator[Walk]:
    """Whatever happens, nothing is left running."""
    try:
        yield walk
    finally:
        for site in walk.sites.values():
            site.stop()


def require_one_model(walk: Walk, folder: str) -> None:
    """All parties hold the same model, of all rounds."""
    models = set()
    for name in PARTIES:
        model, rounds = held_model(load_federation(walk.sites[name].folder / folder.format(name)), name)
        models.add(model.tobytes())
        assert rounds == 2
    assert len(models) == 1


@pytest.fixture
def by_hand(tmp_path: Path) -> Iterator[Walk]:
    with walking(Walk(tmp_path, section("### By hand", "## 4. While it runs"))) as walk:
        yield walk


@pytest.fixture
def by_invitation(tmp_path: Path) -> Iterator[Walk]:
    with walking(Walk(tmp_path, section("### By invitation", "### By hand"))) as walk:
        yield walk


def test_the_commands_for_one_machine_make_the_folder_that_the_page_shows_and_launch_it(
    tmp_path: Path,
) -> None:
    """The page's own task and rounds."""
    (init, launch), site = one_machine()[:2], Site(tmp_path / "here")
    assert (init[1], launch[1]) == ("init", "launch")
    site.run([*init, "--broker-port", str(free_port())])
    listed = re.findall(r"^(fed/\S+)  +(.+)$", section(*ONE_MACHINE), re.MULTILINE)
    assert len(listed) > 5
    for place, words in listed:
        files = re.findall(r"[\w-]+(?:\.\w+)+", words) if place.endswith("/") else []
        for shown in (place, *(place + name for name in files)):
            assert (site.folder / shown.replace("NAME", "p1")).exists(), shown
    said = site.run(launch)
    model, rounds = held_model(load_federation(site.folder / init[2]), "p1")
    assert (rounds, len(model) > 0) == (int(init[init.index("--rounds") + 1]), True)
    assert f"finished after {rounds} rounds" in said


def test_the_commands_for_a_task_of_ones_own_make_simulate_and_launch_a_study(tmp_path: Path) -> None:
    """After the first, each is typed in the folder that it made; `launch` ends with the model that `simulate` had."""
    new, *inside = one_machine()[2:5]
    assert [new[1], *(words[1] for words in inside)] == ["new", "simulate", "launch"]
    site = Site(tmp_path / "here")
    site.run([*new, "--broker-port", str(free_port())])
    site.folder /= new[2]
    simulated, launched = (re.findall(r"sha256 (\w+)", site.run(words)) for words in inside)
    assert simulated == launched != []


def test_four_organisations_come_from_nothing_to_a_model_by_invitation(by_invitation: Walk) -> None:
    """Two commands of each party, four of the organiser, one file each way and the words on the telephone."""
    walk, typed = by_invitation, dict.fromkeys((*PARTIES, "office"), 0)
    office, telephone, words_of_keys = walk.sites["office"], dict[str, str](), dict[str, str]()
    for site, words in walk.commands(0):
        typed[site] += 1
        if words[1] == "invite":
            printed = office.run(words)
            telephone = dict(re.findall(r"read to (\w+) on the telephone: (.+)", printed))
            assert len(set(telephone.values())) == len(PARTIES)
            for name in PARTIES:
                walk.sites[name].receive(office.folder / f"fed/invitations/{name}.invite", f"{name}.invite")
        elif words[1] == "join" and not (walk.sites[site].folder / site).exists():
            printed = walk.sites[site].run(words, telephone[site] + "\n")
            (words_of_keys[site],) = re.findall(r"read to them: +(.+)", printed)
            office.receive(walk.sites[site].folder / site / f"{site}.enrolment", f"{site}.enrolment")
        elif words[1] == "roster":
            assert dict(re.findall(r"(\w+) must read the same: (.+)", office.run(words))) == words_of_keys
        elif words[1] in ("host", "join"):
            walk.sites[site].start(words)
        else:
            walk.sites[site].run(words)
    assert typed.pop("office") == 4
    assert set(typed.values()) == {2}
    for site in walk.sites.values():
        for process in site.started:
            assert process.wait(timeout=SECONDS) == 0, [one.said() for one in walk.sites.values()]
    require_one_model(walk, "{}")


def test_the_commands_of_the_guide_lead_from_nothing_to_a_model_by_hand(by_hand: Walk) -> None:
    """The office has neither the package of the task nor its data, and the server needs none of it either."""
    walk = by_hand
    for site, words in walk.commands(0):
        walk.fingerprint = FINGERPRINT.findall(walk.sites[site].run(words))[0]
    for name in (*PARTIES, "broker"):
        for file in ("fed/federation.toml", "fed/roster.json", "fed/broker/ca.pem"):
            walk.sites[name].receive(walk.sites["office"].folder / file, file)
    walk.sites["broker"].receive(walk.sites["office"].folder / "fed" / "broker", "fed/broker")

    chains: dict[str, list[list[str]]] = {}
    for site, words in walk.commands(1):
        chains.setdefault(site, []).append(words)
    for column in range(max(map(len, chains.values()))):
        begun = [
            walk.sites[site].begin(lines[column]) for site, lines in chains.items() if column < len(lines)
        ]
        for process in begun:
            done(process)
    for name in PARTIES:
        for file in ("identity.pub.json", "broker-login", "first-model.json"):
            assert f"`{file}`" in walk.steps[1]
            walk.sites["office"].receive(
                walk.sites[name].folder / "keys" / name / file, f"post/{name}/{file}"
            )
    for file in ("identity.pub.json", "broker-login"):
        walk.sites["office"].receive(
            walk.sites["broker"].folder / "keys" / "server" / file, f"post/server/{file}"
        )

    for site, words in walk.commands(2):
        walk.sites[site].run(words)
    for name in (*PARTIES, "broker"):
        walk.sites[name].receive(walk.sites["office"].folder / "fed" / "roster.json", "fed/roster.json")
    for file in ("passwords", "acl"):
        walk.sites["broker"].receive(
            walk.sites["office"].folder / "fed" / "broker" / file, f"fed/broker/{file}"
        )

    started = {
        words[1]: walk.sites[site].start(words) for site, words in walk.commands(3) if site == "broker"
    }
    parties = [walk.sites[site].start(words) for site, words in walk.commands(3) if site in PARTIES]
    for process in (started["server"], *parties):
        assert process.wait(timeout=SECONDS) == 0, [site.said() for site in walk.sites.values()]
    require_one_model(walk, "fed")
    with pytest.raises(LocalProtocolError):
        held_model(load_federation(walk.sites["broker"].folder / "fed"), "server")
