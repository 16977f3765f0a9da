"""The lines that `localspec verify` prints about comparisons and their divergences."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localspec.bench.exactness import SettingComparison, Verification
    from localspec.bench.scoring import Divergence

NOT_EXACT = "NOT EXACT: please report this with the output of `localspec doctor --json`"


def report(result: Verification, *, complete: bool = True) -> dict[str, Any]:
    """The object that ``verify --json`` prints; where it is not ``complete``, nothing is exact."""
    return {
        "complete": complete,
        "exact": result.exact if complete or not result.exact else None,
        "batch_noise": result.batch_noise,
        "typical_noise": result.typical_noise,
        "widths": {str(width): passes for width, passes in result.widths.items()},
        "settings": [
            dataclasses.asdict(c)
            | {
                "identical": c.identical,
                "acceptance": c.acceptance,
                "divergence_rate": len(c.divergences) / c.replies if c.replies else 0.0,
                "divergences": [divergence_json(d) for d in c.divergences],
            }
            for c in result.comparisons
        ],
    }


def divergence_json(d: Divergence) -> dict[str, Any]:
    """JSON of a divergence; an infinite gap becomes null."""
    return dataclasses.asdict(d) | {"gap": d.gap if math.isfinite(d.gap) else None}


def row_lines(c: SettingComparison) -> list[str]:
    """Lines about one temperature and its divergences."""
    per_round = c.tokens / c.rounds if c.rounds else 0.0
    compared = f"{c.identical} of {c.replies} replies identical"
    figures = f"acceptance {c.acceptance:.0%}, {per_round:.1f} tokens per round"
    lines = [f"temperature {c.temperature:g}: {compared} ({c.tokens} tokens, {figures})"]
    return [*lines, *divergence_lines(c.divergences, "plain", "drafted")]


def divergence_lines(divergences: Sequence[Divergence], first: str, second: str) -> list[str]:
    """A line about each divergence of a ``second`` reply from a ``first`` one."""
    return [
        f"  {'near-tie' if d.near_tie else 'NOT A NEAR-TIE'}: logit gap {d.gap:.4f} at token "
        f"{d.position} of {d.prompt!r} ({first} {d.plain}, {second} {d.drafted})"
        for d in divergences
    ]


def incomplete_lines(result: Verification) -> list[str]:
    """The conclusion from an incomplete set of rows."""
    total = sum(c.replies for c in result.comparisons)
    diverged = sum(len(c.divergences) for c in result.comparisons)
    lines = [f"incomplete: {total} replies compared, {total - diverged} identical"]
    return lines if result.exact else [*lines, NOT_EXACT]


def closing_lines(result: Verification) -> list[str]:
    """The conclusion from all rows."""
    noise = f"{result.batch_noise:.2g} here (typically {result.typical_noise:.2g})"
    widest = max(result.widths, default=1)
    passes = f"passes over one and over several tokens (up to {widest})"
    lines = [f"logits of {passes} differ by up to {noise}"]
    total = sum(c.replies for c in result.comparisons)
    diverged = sum(len(c.divergences) for c in result.comparisons)
    if not result.exact:
        lines.append(NOT_EXACT)
    elif diverged == 0:
        lines.append(f"exact: all {total} replies identical")
    else:
        lines.append(
            f"exact up to near-ties: {diverged} of {total} replies ({diverged / total:.1%})"
        )
    return lines
