"""How many neighbours a party needs in a large federation, and how many of them must agree.

On a k-regular graph a party shares its secrets with k neighbours, t of whom rebuild them. The neighbours
are a uniform k-subset of the other n - 1 parties, so the number of corrupt (or vanished) ones among them is
hypergeometric. Three things must not happen to any of the n parties:

* Exposure. Semi-honest: t corrupt neighbours pool their shares. Lying: two survivor lists for one party
  both collect t of its neighbours' signatures; an honest neighbour signs one, a corrupt one both, so that
  takes 2t - k corrupt neighbours. n * P[corrupt >= t, or 2t - k] <= 2^-security_bits.
* Isolation. The honest parties that stay fall into parts that the server can unmask one by one. On the
  circle of protocol/graphs/graph.py that takes two separate runs of k/2 corrupt or vanished parties, hence
  n(n-1)/2 * P[k given places are all corrupt or vanished] <= 2^-security_bits. This is stricter than the
  usual n * P[...], which counts only parties that lose all their neighbours; it costs nothing in practice.
* Failure. More than k - t neighbours vanish and the secret cannot be rebuilt: n * P[...] <=
  2^-failure_bits.

t counts neighbours. If the party keeps a share of its own as well, it is released under the same signed list
and adds to neither side. Vanished parties are those that vanish; what holds against a server that picks
them after it has seen the graph, and the rule that takes, is in specs/sharing-and-graphs.md, section 4.

Corrupt and vanished parties are rounded up to whole numbers and counted against the n - 1 others, as if the
party itself were honest. All tails are exact integers: no floating point decides about safety. The search
runs over every even k, because feasibility is not monotone in k: t can only move in whole steps.

The bounds hold for a seed that the adversary could not choose. Whoever can try 2^g seeds before settling on
one gains at most g bits on the first two bounds; set `security_bits` accordingly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from veilsum.protocol.agreed.threat import Threat
from veilsum.protocol.errors import ParameterError

SMALLEST_DEGREE = 6


@dataclass(frozen=True)
class NeighbourhoodSize:
    """`k` neighbours for each party, `t` of whom rebuild or sign."""

    k: int
    t: int


def find_degree_and_threshold(
    parties: int,
    corrupt_fraction: float,
    dropout_fraction: float,
    threat: Threat,
    security_bits: int = 40,
    failure_bits: int = 20,
) -> NeighbourhoodSize:
    """The smallest even k of at least 6, and for it the smallest t, that meet all three bounds."""
    _require_search_parameters(parties, corrupt_fraction, dropout_fraction, security_bits, failure_bits)
    others = parties - 1
    corrupt = min(others, _rounded_up_share(parties, corrupt_fraction))
    dropped = min(others, _rounded_up_share(parties, dropout_fraction))
    exposure_odds = parties << security_bits
    isolation_odds = math.comb(parties, 2) << security_bits
    failure_odds = parties << failure_bits
    for k in range(SMALLEST_DEGREE, others + 1, 2):
        if _all_marked(others, corrupt + dropped, k) * isolation_odds > math.comb(others, k):
            continue
        threshold = _smallest_safe_threshold(others, corrupt, k, exposure_odds, threat)
        largest_threshold = k - _smallest_rare_count(others, dropped, k, failure_odds) + 1
        if threshold <= min(k, largest_threshold):
            return NeighbourhoodSize(k, threshold)
    raise ParameterError(
        [
            f"no k-regular graph over {parties} parties holds against {corrupt} corrupt and {dropped} "
            f"vanished parties ({threat.value} server, exposure 2^-{security_bits}, "
            f"failure 2^-{failure_bits}): "
            "use the complete graph, or plan for fewer corrupt or vanished parties"
        ]
    )


def _require_search_parameters(
    parties: int, corrupt_fraction: float, dropout_fraction: float, security_bits: int, failure_bits: int
) -> None:
    problems = []
    if parties <= SMALLEST_DEGREE:
        problems.append(
            f"{parties} parties are too few for {SMALLEST_DEGREE} neighbours each: use the complete graph"
        )
    for name, fraction in (("corrupt_fraction", corrupt_fraction), ("dropout_fraction", dropout_fraction)):
        if not 0 <= fraction < 1:
            problems.append(f"{name} {fraction} is not in [0, 1)")
    for name, bits in (("security_bits", security_bits), ("failure_bits", failure_bits)):
        if bits < 1:
            problems.append(f"{name} {bits} is below 1")
    if problems:
        raise ParameterError(problems)


def _rounded_up_share(parties: int, fraction: float) -> int:
    """The decimal that was written, not its binary neighbour: 5 % of 100 are 5 parties and not 6."""
    return math.ceil(Fraction(str(fraction)) * parties)


def _smallest_safe_threshold(others: int, corrupt: int, k: int, odds: int, threat: Threat) -> int:
    rare = _smallest_rare_count(others, corrupt, k, odds)
    return max(2, rare if threat is Threat.SEMI_HONEST else (rare + k + 1) // 2)


def _smallest_rare_count(population: int, marked: int, draws: int, odds: int) -> int:
    """The smallest x with odds * P[X >= x] <= 1, X = how many of `draws` without return are marked."""
    total = math.comb(population, draws)
    ways_from_the_top = _ways_from_the_top(population, marked, draws)
    count = min(draws, marked) + 1
    tail = next(ways_from_the_top)
    while tail * odds <= total:
        count -= 1
        tail += next(ways_from_the_top)
    return count


def _ways_from_the_top(population: int, marked: int, draws: int) -> Iterator[int]:
    """The number of draws with exactly x marked, for x from the largest possible down to the smallest."""
    unmarked = population - marked
    highest, lowest = min(draws, marked), max(0, draws - unmarked)
    ways = math.comb(marked, highest) * math.comb(unmarked, draws - highest)
    for x in range(highest, lowest - 1, -1):
        yield ways
        ways = ways * x * (unmarked - draws + x) // ((marked - x + 1) * (draws - x + 1))


def _all_marked(population: int, marked: int, draws: int) -> int:
    return math.comb(min(marked, population), draws)
