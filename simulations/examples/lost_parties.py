"""Two of eight parties vanish before their upload, and the network drops, doubles and reorders what it carries.

The sum of a round is that of the parties which are left, bit for bit; the masks of the lost are rebuilt from shares.
"""

from __future__ import annotations

import veilsum


def main() -> None:
    parties = tuple("abcdefgh")
    config = veilsum.FederationConfig(scheme="masked", parties=parties, task="vectors:1000", rounds=3, seed=7)
    result = veilsum.simulate(config, drop="2@upload", faults="drop=0.1,duplicate=0.1,reorder=0.2")
    for round in result.rounds:
        print(f"round {round.round}, attempt {round.attempt}: {' '.join(round.members)}")
    figures = result.figures()
    print(f"lost: {' '.join(figures['lost'])}; the sum is exact: {figures['exact_ring_sum']}")


if __name__ == "__main__":
    main()
