"""How many fractional bits fit a federation, and the error they leave.

Vectors travel as fixed-point words that wrap around. The sum of all parties must never wrap, so parties, clip
and word size bound the fractional bits f:

    parties * (max(clip, 1) * 2^f + 1) < 2^(bits - 1)

A run uses at most 40 of them. A request that leaves too few exits with 2 and says which number to change.

example:
  veilsum plan --parties 100 --max-weight 1000 --clip 8 --bits 64
"""

from __future__ import annotations

import argparse
from typing import Any

from veilsum.roles.cli.output import Table, add_json_option, publish


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parties", type=int, required=True, metavar="N", help="the most parties in one sum")
    parser.add_argument(
        "--max-weight", type=int, required=True, metavar="W", help="the most samples one party may hold"
    )
    parser.add_argument(
        "--clip", type=float, required=True, metavar="C", help="the largest absolute value of a coordinate"
    )
    parser.add_argument("--bits", type=int, default=64, metavar="B", help="word size, 32 or 64 (default 64)")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    from veilsum.protocol.numbers.fixedpoint import plan

    found = plan(args.parties, args.max_weight, args.clip, args.bits)
    encoding = found.encoding
    figures: dict[str, Any] = {
        "parties": args.parties,
        "max_weight": args.max_weight,
        "clip": args.clip,
        "bits": args.bits,
        "planned_fractional_bits": found.planned_bits,
        "fractional_bits": encoding.fractional_bits,
        "headroom_bits": found.headroom_bits,
        "worst_case_error": encoding.worst_case_error(),
        "worst_case_error_one_sample_each": encoding.worst_case_error(samples=1),
    }
    rows = [
        ("fractional bits that fit", str(found.planned_bits)),
        ("fractional bits used", str(encoding.fractional_bits)),
        ("headroom, bits", f"{found.headroom_bits:.2f}"),
        ("smallest step", f"{1 / encoding.scale:.2e}"),
        (
            f"error of the mean, every party with {args.max_weight} samples",
            f"{encoding.worst_case_error():.2e}",
        ),
        ("error of the mean, every party with 1 sample", f"{encoding.worst_case_error(samples=1):.2e}"),
        ("bytes of a coordinate on the wire", str(encoding.ring.word_bytes)),
    ]
    asked = f"{args.parties} parties, weights up to {args.max_weight}, values up to {args.clip:g}"
    title = f"{asked}, {args.bits}-bit words"
    publish(Table(title, ("worst case", "value"), rows).render(), figures, args.json)
    return 0
