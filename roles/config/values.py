"""The settings of a federation as plain values, checked for themselves, and what follows from its scheme alone.

They are checked when they are put together, with all problems reported together, and never change. They are texts
and numbers, so that reading them loads neither numpy nor torch; `timing`, `training_options` and `task_options` pass
them on one for one, importing what they make when first asked. `FederationConfig` adds what is built from all of them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from veilsum.protocol.errors import ParameterError, Rejection
from veilsum.protocol.identifiers import SERVER, require_party_id
from veilsum.roles.config.data_folders import DataFolders
from veilsum.roles.config.settings import SETTINGS
from veilsum.roles.config.spelling import did_you_mean
from veilsum.roles.config.user_code import OWN, CodeAccess, UserCodeNotFound, UserCodeUnreadable, named_files

if TYPE_CHECKING:
    from veilsum.protocol.agreed.parameters import Timing
    from veilsum.protocol.machines.scheme import Scheme
    from veilsum.roles.learning.contract import Payload
    from veilsum.roles.learning.task import Loss, TaskOptions
    from veilsum.roles.learning.training.settings import GradientBatch, Optimizer, TrainingOptions

MOST_PARTIES = 100_000
DEFAULT_MAX_WEIGHT = 65536
NAMING_CODE = ("scheme", "task", "defence")
"""The settings that may name code of a user's own."""
CODE_DIGESTS = "code_sha256"
"""What is signed of files with code: name -> SHA-256, beside the settings; left out where no file is named."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d{1,3})?")


def party_names(count: int) -> tuple[str, ...]:
    """p1, p2, ... with leading zeros where needed, so that sorting by name is sorting by number."""
    if not 1 <= count <= MOST_PARTIES:
        raise ParameterError([f"parties must be 1 to {MOST_PARTIES}, not {count}"])
    width = len(str(count))
    return tuple(f"p{number:0{width}}" for number in range(1, count + 1))


@dataclass(frozen=True)
class FederationValues:
    """The fields of a federation's configuration, with their defaults.

    roles/config/settings.py has the meaning of each, specs/federation-file.md the file.
    """

    name: str = "federation"
    scheme: str = "ampc"
    parties: tuple[str, ...] = party_names(5)
    rounds: int = 3
    seed: int = 0
    task: str = "digits"
    data: str | None = None
    split: str = "iid"
    model: str | None = None
    loss: str | None = None
    payload: str = "model"
    optimizer: str = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.0
    local_epochs: int | None = None
    batch_size: int | None = 16
    lr_schedule: str = "constant"
    gradient_batch: str = "full"
    server_optimizer: str = "sgd"
    defence: str = ""
    bits: int = 64
    clip: float = 8.0
    max_weight: int | None = None
    weights: str = "samples"
    min_parties: int | None = None
    threat: str = "lying"
    colluders: int | None = None
    recovery: str = "shares"
    graph: str = "auto"
    threshold: int | None = None
    corrupt: float = 0.05
    dropout: float = 0.1
    bias: str = "own"
    shares: str = "seeded"
    rekey: str = "epoch"
    schedule: str = "fedavg"
    differencing: str = "warn"
    tell_metric: bool = False
    max_attempts: int = 3
    noise: str = "scale+offset"
    groups: int = 1
    gamma: float = 1.0
    alpha: str = "mean"
    ce_exchange: str = "log"
    barrier: str = "refuse"
    opening_s: float = 30.0
    phase_s: float = 30.0
    training_s: float = 600.0
    patience_s: float = 900.0
    device: str = "auto"
    devices: Mapping[str, str] = field(default_factory=dict)
    broker_host: str = "localhost"
    broker_port: int = 8883
    broker_tls: bool = True
    broker_ca: str | None = None
    mqtt_version: str = "auto"
    options: Mapping[str, str] = field(default_factory=dict)
    code: CodeAccess = field(default=OWN, compare=False)
    """No setting: what may be loaded of the code that the settings name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", MappingProxyType(dict(self.devices)))
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))
        folders: object = self.data
        if isinstance(folders, (Path, Mapping)):
            object.__setattr__(self, "data", _text_of_folders(folders))
        given: object = self.parties
        if isinstance(given, int) and not isinstance(given, bool):
            object.__setattr__(self, "parties", party_names(given))
        elif isinstance(given, list):
            object.__setattr__(self, "parties", tuple(given))
        problems = list(self._form_problems())
        if not problems:
            object.__setattr__(self, "parties", tuple(sorted(self.parties)))
            problems = [*self._party_problems(), *self._range_problems()]
        if problems:
            raise ParameterError(problems)

    @property
    def cohort_floor(self) -> int:
        """The smallest sum that a party takes part in: `min_parties`, or the default of the scheme."""
        if self.min_parties is not None:
            return self.min_parties
        if self.names_own_scheme and self.code.refusal:
            raise ParameterError(
                [f"min_parties must be set where the scheme is code of its own, as {self.scheme} is"]
            )
        from veilsum.protocol.machines.scheme import least_parties

        return least_parties(self.load_scheme(), self.colluder_count)

    @property
    def colluder_count(self) -> int:
        """How many parties may work with the server: `colluders`, or what the threat says of so many parties."""
        from veilsum.protocol.agreed.threat import Threat, tolerated_colluders

        if self.colluders is not None:
            return self.colluders
        return tolerated_colluders(len(self.parties), Threat(self.threat))

    @property
    def upload(self) -> str:
        """What parties upload: `payload`, or a gradient where the scheme can recover nothing else."""
        return "gradient" if self.perturbs and self.payload == "model" else self.payload

    @property
    def perturbs(self) -> bool:
        """Whether parties train on a perturbed model; not in a scheme that cannot be found, which is said elsewhere."""
        try:
            return self.load_scheme().perturbs
        except ParameterError:
            return False

    @property
    def measures_own_tests(self) -> bool:
        """Whether each party measures the common model on test samples of its own, and on no others."""
        return self.split == "own" and not self.perturbs

    @property
    def weight_limit(self) -> int:
        """The most samples one party may hold: `max_weight`, or a default that fits most data sets."""
        return DEFAULT_MAX_WEIGHT if self.max_weight is None else self.max_weight

    def load_scheme(self) -> Scheme:
        """The scheme; one that a user named is imported first, if that is allowed, so that it can register."""
        from veilsum.roles.config.schemes import load_scheme

        return load_scheme(self.scheme, self.code)

    @property
    def task_is_numbers(self) -> bool:
        """Whether the task is `vectors:D`, which has neither data nor code."""
        return self.task.partition(":")[0] == "vectors"

    @property
    def names_own_scheme(self) -> bool:
        """Whether the scheme is a user's, so that knowing anything about it takes running its code."""
        return ":" in self.scheme

    @property
    def code_files(self) -> tuple[str, ...]:
        """The files with code that the settings name, as they name them."""
        return tuple(dict.fromkeys(file for name in NAMING_CODE for file in named_files(getattr(self, name))))

    @property
    def timing(self) -> Timing:
        """How long each wait of a machine may last."""
        from veilsum.protocol.agreed.parameters import Timing

        return Timing(self.opening_s, self.phase_s, self.training_s, self.patience_s)

    def training_options(self, party: str | None = None, device: str | None = None) -> TrainingOptions:
        """How `party` trains; `device` overrides what the configuration says about it."""
        from veilsum.roles.learning.training.settings import TrainingOptions

        return TrainingOptions(
            optimizer=cast("Optimizer", self.optimizer),
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            local_epochs=self.local_epochs,
            batch_size=self.batch_size,
            schedule=self.lr_schedule,
            payload=cast("Payload", self.upload),
            gradient_batch=cast("GradientBatch", self.gradient_batch),
            device=device or self.device_of(party),
            server_optimizer=self.server_optimizer,
        )

    @property
    def data_folders(self) -> DataFolders:
        """Where the data lie: relative to the file that says so, or to the current folder."""
        return DataFolders.parse(self.data).below(self.code.folder)

    def task_options(self, data: Path | str | None = None, party: str | None = None) -> TaskOptions:
        """What `load_task(config.task, ...)` needs for a party; `data` overrides the configured folder."""
        from veilsum.roles.learning.task import TaskOptions

        return TaskOptions(
            data=self.data_folders.of(party) if data is None else Path(data),
            seed=self.seed,
            model=self.model,
            loss=cast("Loss | None", self.loss),
        )

    def device_of(self, party: str | None) -> str:
        return self.device if party is None else self.devices.get(party, self.device)

    def index_of(self, party: str) -> int:
        """The place of a party in the order that splits and batch orders are drawn in, from 0."""
        if party not in self.parties:
            near = did_you_mean(party, self.parties)
            raise ParameterError([f"{party} is not one of the parties: {_some(self.parties)}{near}"])
        return self.parties.index(party)

    def agreed(self) -> dict[str, Any]:
        """The settings that the organiser signs, as plain values; what tells nothing needs no signature."""
        values = {one.attribute: getattr(self, one.attribute) for one in SETTINGS if one.agreed}
        if not self.tell_metric:
            del values["tell_metric"]
        return {
            **values,
            "parties": list(self.parties),
            "colluders": self.colluder_count,
            "min_parties": self.cohort_floor,
            "max_weight": self.weight_limit,
            "options": dict(self.options),
            **({CODE_DIGESTS: self._code_digests()} if self.code_files else {}),
        }

    def _code_digests(self) -> dict[str, str]:
        digests = {}
        for name in NAMING_CODE:
            for file in named_files(getattr(self, name)):
                try:
                    digests[file] = self.code.digest_of(file)
                except UserCodeUnreadable as error:
                    raise UserCodeNotFound(
                        name, getattr(self, name), file, error, "correct its name"
                    ) from None
        return digests

    @property
    def agreed_digest(self) -> bytes:
        """SHA-256 over `agreed()` as canonical JSON."""
        text = json.dumps(self.agreed(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).digest()

    def _form_problems(self) -> Iterator[str]:
        for setting in SETTINGS:
            value = getattr(self, setting.attribute)
            if not ((value is None and setting.attribute in _OPTIONAL) or setting.accepts(value)):
                yield f"{setting.attribute} must be {setting.expected}, not {value!r}{setting.near(value)}"
        free: dict[str, Mapping[Any, Any]] = {"devices": self.devices, "options": self.options}
        for name, texts in free.items():
            for key, value in texts.items():
                if not isinstance(key, str) or not isinstance(value, str):
                    yield f"{name}: {key!r} must be a text, not {value!r}"

    def _party_problems(self) -> Iterator[str]:
        if not self.parties:
            yield "parties must name at least one party"
        for party, times in Counter(self.parties).items():
            if times > 1:
                yield f"party {party} is listed {times} times"
            if party == SERVER:
                yield f"no party may be called {SERVER!r}: that is the server's name"
            try:
                require_party_id(party)
            except Rejection as refusal:
                yield refusal.detail
        for party in self.devices:
            if party == "default":
                yield "devices: a party called 'default' gets the common device; set device instead"
            elif party not in self.parties:
                near = did_you_mean(party, self.parties)
                yield f"devices: {party} is not one of the parties: {_some(self.parties)}{near}"

    def _range_problems(self) -> Iterator[str]:
        if not _NAME.fullmatch(self.name):
            yield f"name must be 1 to 64 of A-Z a-z 0-9 . _ - beginning with a letter or digit, not {self.name!r}"
        if self.rounds < 1:
            yield f"rounds must be at least 1, not {self.rounds}"
        for device in (self.device, *self.devices.values()):
            if not _DEVICE.fullmatch(device):
                yield f"device {device!r} is not one of auto, cpu, cuda, cuda:INDEX, mps"
        for name in ("corrupt", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                yield f"{name} must be from 0 to below 1, not {getattr(self, name)}"
        if not self.broker_host:
            yield "broker_host must not be empty"
        if not 0 < self.broker_port < 65536:
            yield f"broker_port must be 1 to 65535, not {self.broker_port}"


_OPTIONAL = {one.name for one in dataclasses.fields(FederationValues) if "None" in str(one.type)}


def _text_of_folders(given: Path | Mapping[str, Path | str]) -> str:
    """Folders as a setting has them: a text that reads back as the same."""
    if isinstance(given, Path):
        return str(DataFolders(given))
    folders = DataFolders(None, {name: Path(folder) for name, folder in given.items()})
    if not folders.of_party or DataFolders.parse(str(folders)) != folders:
        raise ParameterError(
            [f"data: {str(folders)!r} does not read back as these folders: give them names without commas"]
        )
    return str(folders)


def default_of(attribute: str) -> Any:
    """What a setting is when nobody says anything."""
    return getattr(FederationValues(), attribute)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
