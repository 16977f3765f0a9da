"""``localspec tune``: measure the cost of passes on this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.containment import Unfinished, contain
from localspec.cli.flags import model_argument, model_flags, sort_flags
from localspec.cli.interrupt import CtrlC
from localspec.cli.output import in_lines, json_line, tell, write
from localspec.cli.working import UNFINISHED, Working, open_runtime
from localspec.core.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from localspec.policy.costs import Costs

_INCOMPLETE = "incomplete: passes were not measured to the end, and nothing was saved"
_ACCEPTANCES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)


@click.command("tune")
@model_argument
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of a table.")
@model_flags
def command(model: str | None, *, as_json: bool, **flags: Any) -> int:
    """Measure the cost of passes of each width with this model, and save it for the controller.

    The first use of a pair does this by itself; `tune` repeats it and prints the result.
    """
    contain()
    from localspec.bench.lab import Lab

    options = dataclasses.replace(sort_flags(model, flags).options, remeasure=True)
    if options.draft_max is not None:
        raise UsageError("tune finds the best draft lengths; leave --draft-max out")
    with (
        CtrlC() as ctrl_c,
        open_runtime(options, lambda: ctrl_c.pressed) as runtime,
        Unfinished() as unfinished,
    ):
        for notice in runtime.info.notices:
            tell(notice)
        threads, kernels = runtime.info.threads, runtime.info.kernels
        working = Working(ctrl_c)
        least: dict[int, float] = {}

        def measured(width: int, seconds: float) -> None:
            """Hold the least time of each width so far."""
            least[width] = min(seconds, least.get(width, seconds))
            curve = dict(sorted(least.items()))
            if as_json:
                text = json_line(_found(threads, kernels, curve, {}, [], complete=False))
            else:
                text = in_lines([*_curve_lines(curve, curve.get(1), threads), _INCOMPLETE])
            unfinished.hold(text)
            working.tell("measuring passes", f"{len(curve)} widths so far")

        working.tell("measuring passes")
        lab = Lab(runtime)
        costs = lab.measure_costs(measured)
        working.clear()
        if costs is None:
            raise UsageError(
                f"{runtime.info.name} is decoded plainly: "
                f"{runtime.info.speculation.reason or 'there is nothing to tune'}"
            )
        if ctrl_c.pressed:
            raise Interrupted(UNFINISHED)
        text = _whole(costs, threads, kernels, as_json=as_json)
        unfinished.hold(text)  # printed also where it cannot be saved
        lab.save_costs()
    write(text)
    return 0


def _whole(costs: Costs, threads: int, kernels: str, *, as_json: bool) -> str:
    """The output of a measurement to the end."""
    chosen, drafts = _chosen(costs), costs.token_seconds_by_drafter()
    if as_json:
        return json_line(_found(threads, kernels, costs.curve(), drafts, chosen, complete=True))
    return in_lines([f"kernels: {kernels}", *_lines(costs, chosen, threads)])


def _found(
    threads: int,
    kernels: str,
    curve: Mapping[int, float],
    drafts: Mapping[str, float],
    chosen: list[dict[str, float]],
    *,
    complete: bool,
) -> dict[str, Any]:
    """The object that ``tune --json`` prints."""
    return {
        "complete": complete,
        "threads": threads,
        "kernels": kernels,
        "verify": {str(n): s for n, s in curve.items()},
        "draft": dict(drafts),
        "chosen": chosen,
    }


def _chosen(costs: Costs) -> list[dict[str, float]]:
    """The best draft length for all rounds, by acceptance."""
    from localspec.core.speed_formula import best_fixed

    cost = max(costs.token_seconds_by_drafter().values(), default=0.0)
    found = []
    for acceptance in _ACCEPTANCES:
        ratio, k = best_fixed([acceptance], costs.curve(), cost)
        found.append({"acceptance": acceptance, "draft_length": k, "times_plain": ratio})
    return found


def _lines(costs: Costs, chosen: list[dict[str, float]], threads: int) -> list[str]:
    curve = costs.curve()
    one = curve.get(1) or costs.pass_seconds(1)
    lines = _curve_lines(curve, one, threads)
    for source, seconds in costs.token_seconds_by_drafter().items():
        lines.append(
            f"a token drafted by {source}: {1000 * seconds:.2f} ms, "
            f"{seconds / one:.1%} of a plain token"
        )
    lines.append("best draft length, if it were the same in all rounds:")
    lines.append("  ACCEPTANCE   K  × PLAIN")
    lines += [
        f"  {c['acceptance']:>10.0%} {c['draft_length']:>3.0f} {c['times_plain']:>8.2f}"
        for c in chosen
    ]
    return [*lines, *_parked(costs)]


def _parked(costs: Costs) -> list[str]:
    """Lines about drafters that would gain nothing even if all of their guesses were right."""
    import numpy as np

    from localspec.core.settings_schema import MAX_K
    from localspec.policy.prices import MARGIN, most_gain

    one = costs.pass_seconds(1)
    passes = np.array([costs.pass_seconds(k + 1) / one for k in range(MAX_K + 1)])
    quickest = np.minimum.accumulate(passes[::-1])[::-1]  # passes may be padded
    quickest[0] = 1.0
    if most_gain(quickest, 0.0) <= 0:
        return ["no draft gains anything on this machine, even if all its guesses are right"]
    return [
        f"{source} gains nothing on this machine, even if all its guesses are right"
        for source, seconds in costs.token_seconds_by_drafter().items()
        if most_gain(quickest, seconds / one) <= MARGIN
    ]


def _curve_lines(curve: Mapping[int, float], one: float | None, threads: int) -> list[str]:
    """Lines of seconds by width; ``one`` is the seconds of one token, None if unknown."""
    lines = [f"passes of the target on {threads} thread{'s' if threads > 1 else ''}:"]
    lines.append("  TOKENS       MS  × ONE  MS/TOKEN")
    for n, s in curve.items():
        times = "-" if one is None else f"{s / one:.2f}"
        lines.append(f"  {n:>6} {1000 * s:>8.1f} {times:>6} {1000 * s / n:>9.1f}")
    return lines
