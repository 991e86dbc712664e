"""The attacks, what each must know, and who can be the adversary.

example:
  veilsum audit list
"""

from __future__ import annotations

import argparse

from veilsum.roles.cli.output import Table, add_json_option, publish

ADVERSARIES = {
    "server": "follows the protocol and keeps everything",
    "client, peer": "the first party, curious",
    "broker": "sees envelopes, holds no key",
    "coalition": "the server and the first party together",
    "others": "everyone but the last party, without the server",
    "NAME+NAME": "any parties together, e.g. server+p2+p3",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    from veilsum.simulations.attacks.registry import ATTACKS
    from veilsum.simulations.audit.scales import SCALES

    attacks = Table(
        "Attacks",
        ("attack", "level", "against", "what it does"),
        [(one.name, one.knowledge, one.against or "anything", one.summary) for one in ATTACKS.values()],
    )
    adversaries = Table("Adversaries", ("adversary", "who it is"), list(ADVERSARIES.items()))
    scales = Table(
        "Scales",
        ("scale", "images", "evaluations", "restarts", "generators and shadow models in `all`"),
        [
            (
                one.name,
                f"parties x {one.draws}",
                str(one.budget.evaluations),
                str(one.budget.restarts),
                "yes" if one.heavy else "no",
            )
            for one in SCALES.values()
        ],
    )
    text = "\n".join(table.render() for table in (attacks, adversaries, scales))
    figures = {
        "attacks": [
            {"name": one.name, "knowledge": one.knowledge, "against": one.against, "summary": one.summary}
            for one in ATTACKS.values()
        ],
        "adversaries": ADVERSARIES,
        "scales": list(SCALES),
    }
    publish(text, figures, args.json)
    return 0
