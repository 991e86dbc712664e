"""Whom the participants defend against when shares are released, and the threshold that follows.

A party's self mask and its masking key are shared among n holders, t of whom can rebuild either one. The
sum stays private as long as nobody can rebuild both for the same party.

Semi-honest: the server follows the protocol, holders may pool what they saw. t = floor(n/2) + 1 keeps the
secret from every coalition of t - 1 holders and needs only a bare majority to stay online.

Lying: the server may show one survivor list to some holders and another list to the rest. A list counts
with t signatures. An honest holder signs one list, a corrupt one signs both, so two lists need t + t <= (n
- c) + 2c = n + c signatures. Hence the rule 2t > n + c; t = floor(2n/3) + 1 satisfies it for every c <=
floor(n/3), and still lets n - t holders vanish. One holder more in t tolerates two more liars and one
dropout fewer.

A session may be smaller than the roster, and the server picks it. Then c is what the roster tolerates, all of whom may
be in the session, and 2t > s + c must hold for the s that are there: t(s) = floor((s + c)/2) + 1, the smallest such
number. With floor(2s/3) + 1, a roster of 20 (c = 6) and a session of 8, two lists count: 6 + 6 <= 8 + 6.

Implements specs/sharing-and-graphs.md, section 2.
"""

from __future__ import annotations

import enum

from veilsum.protocol.errors import ParameterError


class Threat(enum.Enum):
    """What the server may do; the value is the word used in configurations and on the command line."""

    SEMI_HONEST = "semi-honest"
    LYING = "lying"


def threshold_for(holders: int, threat: Threat) -> int:
    """How many of `holders` shares rebuild a secret; a party that keeps a share of its own is one of them."""
    if holders < 2:
        raise ParameterError([f"a secret is shared among at least 2 holders, not {holders}"])
    if threat is Threat.SEMI_HONEST:
        return holders // 2 + 1
    return 2 * holders // 3 + 1


def tolerated_colluders(participants: int, threat: Threat) -> int:
    """How many of a roster's participants may sign whatever the server wants."""
    return participants // 3 if threat is Threat.LYING else 0


def agreement_threshold(size: int, colluders: int) -> int:
    """How many of `size` holders or voters agree for all, where a roster tolerates so many colluders.

    More than `size` where fewer than `colluders` + 2 are there: these never agree.
    """
    if size < 1 or colluders < 0:
        raise ParameterError([f"{size} voters with {colluders} colluders cannot agree on anything"])
    return (size + colluders) // 2 + 1


def smallest_cohort(colluders: int) -> int:
    """The default of `min_parties`: two honest parties are in every sum, and nobody is in one with only one other."""
    return max(3, colluders + 2)
