"""A federation's configuration as one value: what federation.toml says, and what the command line asks for.

`FederationValues` are the settings and what is made of them one for one; here they are read from a file or from
options, written, examined as a whole, and turned into the parameters of the protocol. Parts that do so are loaded when
they are first asked.

The model's dimension is not part of it: it follows from the task, and only who loads the task knows it.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilsum.protocol.errors import ParameterError
from veilsum.roles.config.data_folders import OWN_SPLIT
from veilsum.roles.config.setting import ALL_SAMPLES
from veilsum.roles.config.spelling import did_you_mean, named_fields
from veilsum.roles.config.user_code import CodeAccess
from veilsum.roles.config.values import FederationValues, party_names

if TYPE_CHECKING:
    from veilsum.protocol.agreed.parameters import Parameters

CODE = "code"
"""The one field that is no setting."""
_ONLY_LOOKING = (
    "and a file decides nothing here: code runs for a party whose pinned organiser signed it, so name your own key "
    "folder with --key where a command has it"
)
MOST_TOLD = 8
"""So many settings stand in the `repr` of a configuration."""
_SHORT = reprlib.Repr()
_SHORT.maxother = _SHORT.maxstring = 40


@named_fields
@dataclass(frozen=True)
class FederationConfig(FederationValues):
    """All settings of one federation: who computes what together, under which scheme, and how; checked before a run.

    roles/config/settings.py has the meaning of each field, specs/federation-file.md the file.
    """

    def __repr__(self) -> str:
        """The scheme, and whatever is not as it is by default."""
        chosen = {"scheme": self.scheme}
        for one in dataclasses.fields(self):
            if one.name == CODE:
                continue
            value, default = getattr(self, one.name), one.default
            if value != ({} if default is dataclasses.MISSING else default):
                chosen[one.name] = f"{len(value)} names" if one.name == "parties" else value
        told = ", ".join(f"{name}={_SHORT.repr(value)}" for name, value in list(chosen.items())[:MOST_TOLD])
        return f"{type(self).__name__}({told}{', ...' if len(chosen) > MOST_TOLD else ''})"

    @classmethod
    def from_options(
        cls, options: Mapping[str, Any], base: FederationConfig | None = None
    ) -> FederationConfig:
        """The configuration with these fields; None means not given, and is taken from `base`.

        `parties` may be a number or names, and `batch_size` may be "all".
        """
        known = [one.name for one in dataclasses.fields(cls) if one.name != CODE]
        unknown = sorted(set(options).difference(known))
        if unknown:
            raise ParameterError([f"unknown setting {name!r}{did_you_mean(name, known)}" for name in unknown])
        given = {name: value for name, value in options.items() if value is not None}
        if isinstance(given.get("parties"), int):
            given["parties"] = party_names(given["parties"])
        elif isinstance(given.get("parties"), Sequence) and not isinstance(given["parties"], str):
            given["parties"] = tuple(given["parties"])
        if given.get("batch_size") == ALL_SAMPLES:
            given["batch_size"] = None
        return dataclasses.replace(base or cls(), **given)

    @classmethod
    def from_toml(cls, path: Path | str, *, run_code: bool = False) -> FederationConfig:
        """The settings of a file; the code that it names may be loaded only if `run_code` says so."""
        from veilsum.roles.config.file import read_values

        values, folder = read_values(Path(path)), Path(path).parent
        access = CodeAccess(folder, "" if run_code else f"{path} names it, {_ONLY_LOOKING}")
        try:
            return cls.from_options(values, cls(code=access))
        except ParameterError as error:
            raise ParameterError([f"{path}: {problem}" for problem in error.problems]) from error

    def trusting_code(self, digests: Mapping[str, str] | None = None) -> FederationConfig:
        """The same for who may run the code that it names; with `digests`, files of exactly this content only."""
        return dataclasses.replace(self, code=CodeAccess(self.code.folder, digests=digests))

    def to_toml(self) -> str:
        """The text of a federation.toml that reads back as this configuration."""
        from veilsum.roles.config.file import write_config

        return write_config(self)

    def with_weight_limit(self) -> FederationConfig:
        """The same with `max_weight` settled: if nobody set it, to the size of the task's training set.

        No party can hold more than all samples, and the tighter the limit, the finer the weights.
        """
        from veilsum.roles.config.build import samples_of_task

        return (
            self
            if self.max_weight is not None
            else dataclasses.replace(self, max_weight=samples_of_task(self))
        )

    def parameters(self, dimension: int) -> Parameters:
        """What the parties agree on, for a model of this dimension."""
        from veilsum.roles.config.build import build_parameters

        return build_parameters(self, dimension)

    def with_data_seen_from(self, folder: Path) -> FederationConfig:
        """The same with data folders as a federation.toml in this folder names them."""
        if self.data is None:
            return self
        return dataclasses.replace(self, data=str(self.data_folders.seen_from(folder)))

    def require_data(self) -> None:
        """Refuse, where all parties are on this machine, data folders that do not fit them or the split."""
        self.require_split()
        if not self.task_is_numbers:
            self.data_folders.require_fitting(self.parties, self.split)

    def require_split(self) -> None:
        """Refuse folders of the parties' own where the task has no data."""
        if self.task_is_numbers and self.split == OWN_SPLIT:
            said = f"split {OWN_SPLIT} means that every party has a data folder of its own, and task {self.task} reads"
            raise ParameterError([f"{said} no data: leave split out"])

    def require_workable(self) -> None:
        """Refuse what cannot work whatever the model's dimension, with all problems together."""
        from veilsum.roles.config.build import find_problems

        if problems := find_problems(self):
            raise ParameterError(problems)
