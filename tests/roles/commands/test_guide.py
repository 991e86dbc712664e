"""The guide's way to a federation of several machines, run as it is printed: four organisations in four folders."""

from __future__ import annotations

import re
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
QUICK = ("--rounds", "2", "--local-epochs", "1", "--opening-s", "20", "--patience-s", "700")
"""What the test adds to the page's own words: two short rounds, and patience with a busy machine."""


class Walk:
    """The steps of a section, each with what its text says is carried from one machine to another."""

    def __init__(self, folder: Path, section: str) -> None:
        self.steps = [f"### {one}" for one in section.split("### ")[1:]]
        self.port = str(free_port())
        self.sites = {name: Site(folder / name, number) for number, name in enumerate(PARTIES)}
        self.sites |= {name: Site(folder / name) for name in ("office", "broker")}
        self.fingerprint = ""

    def words(self, words: list[str], site: str) -> list[str]:
        """A command as this machine types it: with its own name, data and organiser's fingerprint."""
        own = {"alice": site, "broker.example.org": "localhost", "/data/ecg": "data"}
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
            elif any("alice" in word.split("/") for word in words):
                yield from ((site, [word.replace("alice", name) for word in words]) for name in PARTIES)
            else:
                yield site, self.words(words, site)


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    text = GUIDE.read_text()
    section = text[text.index("## 3. Three machines and more") : text.index("## 4. While it runs")]
    walk = Walk(tmp_path, section)
    try:
        yield walk
    finally:
        for site in walk.sites.values():
            site.stop()


def test_the_commands_of_the_guide_lead_from_nothing_to_a_model(walk: Walk) -> None:
    """The office has neither the package of the task nor its data, and the server needs none of it either."""
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
    models = set()
    for name in PARTIES:
        model, rounds = held_model(load_federation(walk.sites[name].folder / "fed"), name)
        models.add(model.tobytes())
        assert rounds == 2
    assert len(models) == 1
    with pytest.raises(LocalProtocolError):
        held_model(load_federation(walk.sites["broker"].folder / "fed"), "server")
