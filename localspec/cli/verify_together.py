"""``localspec verify --together N``: check that company does not change a reply."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from localspec.cli.containment import Unfinished
from localspec.cli.output import in_lines, json_line, write
from localspec.cli.verify_report import NOT_EXACT, divergence_json, divergence_lines
from localspec.cli.working import Working

if TYPE_CHECKING:
    from localspec.bench.together import (
        CompanyComparison,
        CompanyVerification,
        ComparingTogether,
    )


def compare_together(
    comparing: ComparingTogether,
    prompts: int,
    facts: dict[str, Any],
    working: Working,
    *,
    as_json: bool,
) -> CompanyVerification:
    """Print rows as they are measured, or a JSON object at the end; if it ends early, what was
    measured.
    """
    with Unfinished() as unfinished:
        working.tell("comparing")
        for row in comparing.steps():
            result = comparing.so_far()
            complete = row.replies >= 2 * prompts
            if as_json:
                unfinished.hold(json_line(report(result, complete=False) | {"model": facts}))
            elif complete:
                working.clear()
                write(in_lines(_row(result.comparisons[-1])))
                unfinished.hold(in_lines(_incomplete(result)))
            elif row.replies:
                unfinished.hold(in_lines([*_row(result.comparisons[-1]), *_incomplete(result)]))
            stage = f"comparing at temperature {row.temperature:g}"
            working.tell(stage, f"{row.replies // 2} of {prompts} prompts")
        result = comparing.so_far()
        working.clear()
        unfinished.hold("")
    closing = _closing(result, facts)
    write(json_line(report(result) | {"model": facts}) if as_json else in_lines(closing))
    return result


def report(result: CompanyVerification, *, complete: bool = True) -> dict[str, Any]:
    """The object that ``--json`` prints; where it is not ``complete``, nothing is exact."""
    return {
        "complete": complete,
        "together": result.together,
        "exact": result.exact if complete or not result.exact else None,
        "noise": result.noise,
        "typical_noise": result.typical_noise,
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


def _row(c: CompanyComparison) -> list[str]:
    """Lines about one temperature and its divergences."""
    figures = f"{c.tokens} tokens, acceptance {c.acceptance:.0%}, {c.cached} prompt tokens cached"
    line = (
        f"temperature {c.temperature:g}: {c.identical} of {c.replies} replies identical "
        f"({figures}, beside {c.shared} others)"
    )
    return [line, *divergence_lines(c.divergences, "alone", "together")]


def _counts(result: CompanyVerification) -> tuple[int, int]:
    """Replies compared, and those that diverged."""
    return (
        sum(c.replies for c in result.comparisons),
        sum(len(c.divergences) for c in result.comparisons),
    )


def _incomplete(result: CompanyVerification) -> list[str]:
    """The conclusion from an incomplete set of rows."""
    total, diverged = _counts(result)
    lines = [f"incomplete: {total} replies compared, {total - diverged} identical"]
    return lines if result.exact else [*lines, NOT_EXACT]


def _closing(result: CompanyVerification, facts: dict[str, Any]) -> list[str]:
    """The conclusion from all rows."""
    total, diverged = _counts(result)
    noise = f"{result.noise:.2g} here (typically {result.typical_noise:.2g})"
    others = f"{result.together - 1} other{'s' if result.together > 2 else ''}"
    lines = [f"logits alone and beside {others} differ by up to {noise}"]
    if not result.exact:
        lines.append(NOT_EXACT)
    elif diverged == 0:
        lines.append(f"exact: all {total} replies identical")
    else:
        rate = diverged / total
        lines.append(f"exact up to near-ties: {diverged} of {total} replies differ ({rate:.1%})")
    lines.append(f"kernels of the target: {facts['kernels']}")
    if facts["strict"]:
        lines.append(f"strict mode: {facts['strict']}")
    return lines
