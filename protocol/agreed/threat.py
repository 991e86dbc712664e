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
