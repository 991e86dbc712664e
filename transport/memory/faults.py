"""Faults of a network as data, and the dice that decide them.

All decisions come from one `random.Random(seed)`, drawn in the order in which datagrams are sent, so that a
run on virtual time is a function of its seed. These dice protect nothing; keys and masks never come from
here.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from veilsum.transport.errors import BadSetting

if TYPE_CHECKING:
    from veilsum.transport.base import Address, Buffer

PROBABILITIES = ("drop", "duplicate", "reorder", "delay", "corrupt")
LONGEST_DELAY_S = 2.0
LONGEST_OVERTAKING_S = 0.2


@dataclass(frozen=True, slots=True)
class Crash:
    """A party loses all its memory at one time and starts afresh at another, or never (None)."""

    party: Address
    at: float
    back_at: float | None = None

    def __post_init__(self) -> None:
        if self.at < 0 or (self.back_at is not None and self.back_at <= self.at):
            raise BadSetting("crash", self, "a party crashes at 0 or later and comes back after that")

    def covers(self, time: float) -> bool:
        return self.at <= time and (self.back_at is None or time < self.back_at)


@dataclass(frozen=True, slots=True)
class Partition:
    """For a while, parties of different groups do not hear each other; unnamed parties hear everybody."""

    groups: tuple[frozenset[Address], ...]
    since: float
    until: float

    def __post_init__(self) -> None:
        if self.since < 0 or self.until <= self.since:
            raise BadSetting("partition", self, "it begins at 0 or later and ends after that")
        if sum(map(len, self.groups)) != len(frozenset().union(*self.groups)):
            raise BadSetting("partition", self, "a party belongs to one group only")

    def separates(self, time: float, sender: Address, receiver: Address) -> bool:
        if not self.since <= time < self.until:
            return False
        homes = [group for group in self.groups if sender in group or receiver in group]
        return len(homes) == 2


@dataclass(frozen=True, slots=True)
class Faults:
    """How often a datagram meets each fault (probabilities), and what happens to parties when (schedules)."""

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay: float = 0.0
    corrupt: float = 0.0
    crashes: tuple[Crash, ...] = ()
    partitions: tuple[Partition, ...] = ()

    def __repr__(self) -> str:
        """What happens; schedules by their lengths."""
        told = [f"{name}={getattr(self, name):g}" for name in PROBABILITIES if getattr(self, name)]
        lengths = {"crashes": len(self.crashes), "partitions": len(self.partitions)}
        told += [f"{count} {name}" for name, count in lengths.items() if count]
        return f"Faults({', '.join(told)})"

    def __post_init__(self) -> None:
        for name in PROBABILITIES:
            probability = getattr(self, name)
            if not 0.0 <= probability <= 1.0:
                raise BadSetting(f"faults: {name}", probability, "a probability from 0 to 1")

    @classmethod
    def parse(cls, text: str) -> Faults:
        """Read `drop=0.1,duplicate=0.1,...`; the empty text means no faults."""
        chosen: dict[str, float] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = (piece.strip() for piece in item.partition("="))
            if not equals or name not in PROBABILITIES:
                raise BadSetting(
                    "faults", item, f"write NAME=PROBABILITY with NAME of {', '.join(PROBABILITIES)}"
                )
            if name in chosen:
                raise BadSetting("faults", item, f"{name} is given twice")
            try:
                chosen[name] = float(value)
            except ValueError:
                raise BadSetting(f"faults: {name}", value, "a probability from 0 to 1") from None
        return cls(
            drop=chosen.get("drop", 0.0),
            duplicate=chosen.get("duplicate", 0.0),
            reorder=chosen.get("reorder", 0.0),
            delay=chosen.get("delay", 0.0),
            corrupt=chosen.get("corrupt", 0.0),
        )

    @property
    def lose_datagrams(self) -> bool:
        """Whether something sent may never arrive intact, so that only acknowledged transfer delivers it."""
        return bool(self.drop or self.corrupt or self.crashes or self.partitions)

    def is_down(self, party: Address, time: float) -> bool:
        """Whether a party has crashed and is not back."""
        return any(crash.party == party and crash.covers(time) for crash in self.crashes)

    def separate(self, time: float, sender: Address, receiver: Address) -> bool:
        """Whether these two are on different sides of a partition."""
        return any(partition.separates(time, sender, receiver) for partition in self.partitions)

    def __str__(self) -> str:
        """The probabilities, as `parse` reads them back."""
        return ",".join(f"{name}={getattr(self, name)}" for name in PROBABILITIES if getattr(self, name))


class Arrival(NamedTuple):
    """One copy of a datagram on its way: how late it is, whether out of turn, whether damaged."""

    extra_delay_s: float
    overtakes: bool
    corrupted: bool


PUNCTUAL: tuple[Arrival, ...] = (Arrival(0.0, False, False),)


class Dice:
    """Decides the fate of each datagram from one seed."""

    def __init__(self, faults: Faults, seed: int) -> None:
        self._faults = faults
        self._random = random.Random(seed)  # noqa: S311 - simulated faults, not protection

    def arrivals(self) -> tuple[Arrival, ...]:
        """The copies of the next datagram that arrive: none if it is dropped, two if it is duplicated."""
        faults = self._faults
        if self._happens(faults.drop):
            return ()
        copies = 2 if self._happens(faults.duplicate) else 1
        return tuple(self._one_arrival() for _ in range(copies))

    def damaged(self, data: Buffer) -> bytes:
        """The same bytes with one bit flipped; nothing becomes one random byte."""
        damaged = bytearray(data) or bytearray(1)
        position = self._random.randrange(len(damaged) * 8)
        damaged[position // 8] ^= 1 << position % 8
        return bytes(damaged)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def _one_arrival(self) -> Arrival:
        faults = self._faults
        extra = self._random.uniform(0.0, LONGEST_DELAY_S) if self._happens(faults.delay) else 0.0
        overtakes = self._happens(faults.reorder)
        if overtakes:
            extra += self._random.uniform(0.0, LONGEST_OVERTAKING_S)
        return Arrival(extra, overtakes, self._happens(faults.corrupt))

    def _happens(self, probability: float) -> bool:
        return probability > 0.0 and self._random.random() < probability
