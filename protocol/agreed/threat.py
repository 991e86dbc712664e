"""Whom the participants defend against when shares are released, and the numbers that follow.

A party's self mask and its masking key are shared among s holders, t of whom can rebuild either one. The
sum stays private as long as nobody can rebuild both for the same party.

Semi-honest: the server follows the protocol, holders may pool what they saw. t = floor(s/2) + 1 keeps the
secret from every coalition of t - 1 holders and needs only a bare majority to stay online.

Lying: the server may show one survivor list to some holders and another list to the rest. A list counts
with t signatures. An honest holder signs one list, one of the c colluders signs both, so two lists need
t + t <= (s - c) + 2c = s + c signatures. Hence the rule 2t > s + c, and t(s) = floor((s + c)/2) + 1 is the
smallest that follows it. One holder more in t tolerates two more colluders and one dropout fewer.

c is a number of the roster, whatever session the server picks: floor(n/3) of its n participants. Rejected:
c = floor(s/3), two thirds of those present. With a roster of 20, six of whom work with the server, it can open a
session with these six and few others, where six are many more than a third.

A sum in which one honest party stands beside colluders is that party's update to them. Hence no sum is opened
with fewer than c + 2 parties, so that two are honest.

Implements specs/sharing-and-graphs.md, section 2.
"""

from __future__ import annotations

import enum

from veilsum.protocol.errors import ParameterError


class Threat(enum.Enum):
    """What the server may do; the value is the word used in configurations and on the command line."""

    SEMI_HONEST = "semi-honest"
    LYING = "lying"


HONEST_IN_A_SUM = 2
"""So many honest parties at least are in every sum: one alone would be seen by those who know the others' updates."""


def tolerated_colluders(participants: int, threat: Threat) -> int:
    """How many of a roster's participants may sign whatever the server wants, where nobody says more."""
    return participants // 3 if threat is Threat.LYING else 0


def agreement_threshold(size: int, colluders: int) -> int:
    """How many of `size` holders or voters agree for all, where a roster tolerates so many colluders.

    A party that keeps a share of its own is one of the holders. More than `size` where no more than `colluders` are
    there: these never agree.
    """
    if size < 1 or colluders < 0:
        raise ParameterError([f"{size} voters with {colluders} colluders cannot agree on anything"])
    return (size + colluders) // 2 + 1


def smallest_cohort(colluders: int) -> int:
    """The default of `min_parties`: two honest parties are in every sum, and nobody is in one with only one other."""
    return max(3, colluders + HONEST_IN_A_SUM)
