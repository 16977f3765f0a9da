"""Plays the controller on recorded evidence under the costs of many machines.

Ratios are to plain decoding. The bound knows what would be accepted, and cannot be reached.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from policy_lab.beliefs import BELIEFS, healed
from policy_lab.curves import BURSTS, CURVES, DISTURBANCES, OVERRUN
from policy_lab.evidence import Recorded, load
from policy_lab.gpus import GPU_CURVES, GPU_DISTURBANCES
from policy_lab.report import SETS, Setting
from policy_lab.world import with_constructed

_CURVES = (*CURVES, *GPU_CURVES)
_DISTURBANCES = (*DISTURBANCES, *BURSTS, OVERRUN, *GPU_DISTURBANCES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curve", action="append", choices=[c.name for c in _CURVES])
    parser.add_argument("--disturbance", default="steady", choices=[d.name for d in _DISTURBANCES])
    parser.add_argument("--drafters", action="append", choices=["+".join(s) for s in SETS])
    parser.add_argument("--every", type=int, default=3, help="play one reply in so many")
    parser.add_argument(
        "--requests", type=int, action="append", default=[], help="also so many at once"
    )
    parser.add_argument(
        "--beliefs", action="store_true", help="sessions that begin with wrong costs"
    )
    args = parser.parse_args()
    replies = [with_constructed(reply) for reply in load()[:: args.every]]
    (disturbance,) = [d for d in _DISTURBANCES if d.name == args.disturbance]
    print(f"{len(replies)} replies, {sum(r.length for r in replies)} tokens")
    for curve in _CURVES:
        if args.curve and curve.name not in args.curve:
            continue
        for sources in SETS:
            if args.drafters and "+".join(sources) not in args.drafters:
                continue
            setting = Setting(curve, disturbance, sources)
            for line in _lines(args, replies, setting):
                print(line, flush=True)


def _lines(
    args: argparse.Namespace, replies: Sequence[Recorded], setting: Setting
) -> Iterable[str]:
    """The report of one machine and one set of drafters."""
    if not args.beliefs:
        return setting.lines(replies, args.requests)
    return [
        str(setting),
        f"  {'COSTS':24} {'EARLY':>6} {'LATE':>6} {'WORST':>6}",
        *(f"  {b.name:24} {healed(replies, setting, b)}" for b in BELIEFS),
    ]


if __name__ == "__main__":
    main()
