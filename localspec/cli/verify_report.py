"""The output of `localspec verify`: rows as they are compared, or JSON, and the conclusion.

Replies are compared in two ways: drafted with plain ones, and with ``--together`` those in company
with plain ones alone. `DRAFTED` and `TOGETHER` have what is said of each.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localspec.cli.containment import Unfinished
from localspec.cli.output import in_lines, json_line, write
from localspec.cli.working import Working

if TYPE_CHECKING:
    from localspec.bench.exactness import Comparing, SettingComparison, Verification
    from localspec.bench.scoring import Divergence
    from localspec.bench.together import (
        CompanyComparison,
        CompanyVerification,
        ComparingTogether,
    )

NOT_EXACT = "NOT EXACT: please report this with the output of `localspec doctor --json`"


@dataclass(frozen=True, slots=True)
class Words:
    """The output of one way of comparing."""

    each: int
    """Compared replies of a prompt."""
    sides: tuple[str, str]
    """The replies that are compared."""
    row: Callable[[Any], str]
    """A line about one temperature."""
    fields: Callable[[Any], dict[str, Any]]
    """The fields of the JSON object that the other way does not have."""
    noise: Callable[[Any], str]
    """How much the logits differ, in a line."""
    checked: Callable[[Any], int]
    """How much of what is compared happened, in all rows: without any, nothing is exact."""
    nothing: str
    """What is said then."""
    differ: str = ""
    """What diverged replies do."""


def compare(
    comparing: Comparing | ComparingTogether,
    words: Words,
    prompts: int,
    facts: dict[str, Any],
    working: Working,
    *,
    as_json: bool,
) -> bool:
    """Print rows as they are measured, or a JSON object at the end; if it ends early, what was
    measured. Returns whether the replies are exact.
    """
    with Unfinished() as unfinished:

        def hold(lines: list[str]) -> None:
            found = report(comparing.so_far(), words, complete=False) | {"model": facts}
            unfinished.hold(json_line(found) if as_json else in_lines(lines))

        hold([])
        working.tell("comparing")
        for row in comparing.steps():
            result = comparing.so_far()
            if row.replies:
                lines = _row(result.comparisons[-1], words)
                if row.replies >= words.each * prompts and not as_json:
                    working.clear()
                    write(in_lines(lines))
                    lines = []
                hold([*lines, *_incomplete(result)])
            stage = f"comparing at temperature {row.temperature:g}"
            working.tell(stage, f"{row.replies // words.each} of {prompts} prompts")
        result = comparing.so_far()
        working.clear()
    if as_json:
        write(json_line(report(result, words) | {"model": facts}))
    else:
        write(in_lines([*closing_lines(result, words), *_about(facts)]))
    return result.exact and words.checked(result) > 0


def report(
    result: Verification | CompanyVerification, words: Words, *, complete: bool = True
) -> dict[str, Any]:
    """The object that ``verify --json`` prints; nothing is exact where it is not ``complete``, or
    nothing was checked.
    """
    known = complete and words.checked(result) > 0
    return {
        "complete": complete,
        "exact": result.exact if known or not result.exact else None,
        **words.fields(result),
        "settings": [
            dataclasses.asdict(c)
            | {
                "identical": c.identical,
                "acceptance": c.acceptance,
                "divergence_rate": len(c.divergences) / c.replies if c.replies else 0.0,
                "divergences": [_divergence(d) for d in c.divergences],
            }
            for c in result.comparisons
        ],
    }


def _divergence(d: Divergence) -> dict[str, Any]:
    """JSON of a divergence; an infinite gap becomes null."""
    return dataclasses.asdict(d) | {"gap": d.gap if math.isfinite(d.gap) else None}


def _row(c: SettingComparison | CompanyComparison, words: Words) -> list[str]:
    """Lines about one temperature and its divergences."""
    first, second = words.sides
    compared = f"{c.identical} of {c.replies} replies identical"
    return [
        f"temperature {c.temperature:g}: {compared} ({c.tokens} tokens, {words.row(c)})",
        *(
            f"  {'near-tie' if d.near_tie else 'NOT A NEAR-TIE'}: logit gap {d.gap:.4f} at token "
            f"{d.position} of {d.prompt!r} ({first} {d.plain}, {second} {d.drafted})"
            for d in c.divergences
        ),
    ]


def _counts(result: Verification | CompanyVerification) -> tuple[int, int]:
    """Replies compared, and those that diverged."""
    compared = result.comparisons
    return sum(c.replies for c in compared), sum(len(c.divergences) for c in compared)


def _incomplete(result: Verification | CompanyVerification) -> list[str]:
    """The conclusion from an incomplete set of rows."""
    total, diverged = _counts(result)
    lines = [f"incomplete: {total} replies compared, {total - diverged} identical"]
    return lines if result.exact else [*lines, NOT_EXACT]


def closing_lines(result: Verification | CompanyVerification, words: Words) -> list[str]:
    """The conclusion from all rows."""
    total, diverged = _counts(result)
    if not result.exact:
        found = NOT_EXACT
    elif not words.checked(result):
        found = words.nothing
    elif diverged == 0:
        found = f"exact: all {total} replies identical"
    else:
        found = (
            f"exact up to near-ties: {diverged} of {total} replies{words.differ} "
            f"({diverged / total:.1%})"
        )
    return [words.noise(result), found]


def _about(facts: dict[str, Any]) -> list[str]:
    """Lines about what computed."""
    lines = [f"kernels of the target: {facts['kernels']}"]
    if workers := facts["workers"]:
        lines.append(f"computed by workers ({workers}), whose last bits differ from this machine's")
    if facts["strict"]:
        lines.append(f"strict mode: {facts['strict']}")
    return lines


def _drafted_row(c: SettingComparison) -> str:
    per_round = c.tokens / c.rounds if c.rounds else 0.0
    acceptance = f"acceptance {c.acceptance:.0%} of {c.verified} tokens"
    return f"{acceptance}, {per_round:.1f} tokens per round"


def _drafted_noise(result: Verification) -> str:
    passes = f"passes over one and over several tokens (up to {max(result.widths, default=1)})"
    return (
        f"logits of {passes} differ by up to {result.batch_noise:.2g} here (typically "
        f"{result.typical_noise:.2g})"
    )


def _together_row(c: CompanyComparison) -> str:
    return (
        f"acceptance {c.acceptance:.0%}, {c.cached} prompt tokens cached, beside {c.shared} others"
    )


def _together_noise(result: CompanyVerification) -> str:
    others = f"{result.together - 1} other{'s' if result.together > 2 else ''}"
    return (
        f"logits alone and beside {others} differ by up to {result.noise:.2g} here (typically "
        f"{result.typical_noise:.2g})"
    )


DRAFTED = Words(
    each=1,
    sides=("plain", "drafted"),
    row=_drafted_row,
    fields=lambda result: {
        "batch_noise": result.batch_noise,
        "typical_noise": result.typical_noise,
        "widths": {str(width): passes for width, passes in result.widths.items()},
    },
    noise=_drafted_noise,
    checked=lambda result: sum(c.verified for c in result.comparisons),
    nothing="nothing was checked: no token was drafted",
)
TOGETHER = Words(
    each=2,
    sides=("alone", "together"),
    row=_together_row,
    fields=lambda result: {
        "together": result.together,
        "noise": result.noise,
        "typical_noise": result.typical_noise,
    },
    noise=_together_noise,
    checked=lambda result: sum(c.shared for c in result.comparisons),
    nothing="nothing was checked: no other reply ran beside these",
    differ=" differ",
)
