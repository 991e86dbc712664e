"""Where the data lie: in one folder for everybody, or in a folder for each party.

    --data data                          one folder, of which a split gives each party a part
    --data alice=/data/a,bob=/data/b     each party's own folder, for the split `own`

A text is a list if what stands before its first `=` could be the name of a party: `./a=b` is a folder. In a list, a
comma separates only if a name and `=` follow it, and all behind the first `=` of an entry is its folder; so a folder
can have both characters in its name, but not a comma with something like `name=` behind it.

Implements specs/tasks.md, section 3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from veilsum.protocol.errors import ParameterError

_LIST = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}=", re.IGNORECASE)
_NEXT_ENTRY = re.compile(rf",\s*(?={_LIST.pattern})", re.IGNORECASE)


@dataclass(frozen=True)
class DataFolders:
    """The folder of everybody, or that of each party; neither where nobody named one."""

    common: Path | None = None
    of_party: Mapping[str, Path] = field(default_factory=dict)

    @classmethod
    def parse(cls, given: Path | str | None) -> DataFolders:
        """Read what a user wrote; a `Path` is one folder, whatever it is called."""
        if given is None or isinstance(given, Path) or not _LIST.match(given):
            return cls(None if given is None else Path(given))
        entries = [entry.split("=", 1) for entry in _NEXT_ENTRY.split(given)]
        names = [name for name, _ in entries]
        problems = [
            f"data: party {name} has two folders" for name in dict.fromkeys(names) if names.count(name) > 1
        ]
        problems += [
            f"data: party {name} has no folder behind its =" for name, folder in entries if not folder
        ]
        if problems:
            raise ParameterError(problems)
        return cls(None, {name: Path(folder) for name, folder in entries})

    def __str__(self) -> str:
        """The text that reads back as this."""
        if self.of_party:
            return ",".join(f"{name}={folder}" for name, folder in self.of_party.items())
        text = "" if self.common is None else str(self.common)
        return f"./{text}" if _LIST.match(text) else text

    def below(self, folder: Path | None) -> DataFolders:
        """The same, with relative folders below this one."""
        if folder is None:
            return self
        common = None if self.common is None else folder / self.common
        return DataFolders(common, {name: folder / one for name, one in self.of_party.items()})

    def of(self, party: str | None) -> Path | None:
        """The folder that this party reads; for nobody in particular the first one there is."""
        if not self.of_party:
            return self.common
        if party is None:
            return next(iter(self.of_party.values()))
        if party not in self.of_party:
            raise ParameterError([f"data names no folder for party {party}: add {party}=FOLDER to it"])
        return self.of_party[party]

    def seen_from(self, folder: Path) -> DataFolders:
        """The same for a file in this folder: relative to it where they are inside, absolute where not."""

        def seen(one: Path) -> Path:
            absolute, home = one.absolute(), folder.absolute()
            return absolute.relative_to(home) if absolute.is_relative_to(home) else absolute

        common = None if self.common is None else seen(self.common)
        return DataFolders(common, {name: seen(one) for name, one in self.of_party.items()})

    def require_fitting(
        self, parties: Sequence[str], split: str, present: Sequence[str] | None = None
    ) -> None:
        """Refuse, for all parties on one machine, folders that do not fit the parties or the split.

        `present` are those who take part, if not all do.
        """
        wanted = parties if present is None else present
        problems = []
        if strangers := [name for name in self.of_party if name not in parties]:
            problems.append(
                f"data: not among the parties: {', '.join(strangers)}; they are {', '.join(parties)}"
            )
        if self.of_party and (missing := [name for name in wanted if name not in self.of_party]):
            problems.append(f"data names no folder for {', '.join(missing)}: give every party one")
        problems += [
            f"data: the folder {folder} of party {name} is not there"
            for name, folder in self.of_party.items()
            if not folder.is_dir()
        ]
        if self.of_party and split != OWN_SPLIT:
            problems.append(
                f"data names a folder for each party, and split {split} divides one: use split {OWN_SPLIT}"
            )
        if not self.of_party and split == OWN_SPLIT:
            example = ",".join(f"{name}=FOLDER" for name in parties[:2])
            problems.append(
                f"split {OWN_SPLIT} means that every party has a folder of its own: name them with --data {example}"
                f"{',...' if len(parties) > 2 else ''}, or choose a split that divides one folder, such as iid"
            )
        if problems:
            raise ParameterError(problems)


OWN_SPLIT = "own"
"""The split of parties that have folders of their own."""
