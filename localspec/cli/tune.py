"""``localspec tune``: measure what passes cost on this machine, and what follows from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from localspec.cli.flags import model_argument, model_flags, sort_flags
from localspec.cli.interrupt import CtrlC
from localspec.cli.output import tell, write_json, write_line
from localspec.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from localspec.policy.costs import Costs

_ACCEPTANCES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)


@click.command("tune")
@model_argument
@click.option("--json", "as_json", is_flag=True, help="A JSON object instead of a table.")
@model_flags
def command(model: str | None, *, as_json: bool, **flags: Any) -> int:
    """Measure what passes of each width cost with this model, and keep it for the controller.

    The first use of a pair does the same by itself; this does it again and shows what it found.
    """
    from localspec.runtime import Runtime

    options = sort_flags(model, flags).options
    if options.draft_max is not None:
        raise UsageError("tune finds out which draft lengths pay; leave --draft-max out")
    with (
        CtrlC() as ctrl_c,
        Runtime.open(options, cancelled=lambda: ctrl_c.pressed) as runtime,
    ):
        for notice in runtime.info.notices:
            tell(notice)
        costs = runtime.measure_costs()
        if ctrl_c.pressed:
            raise Interrupted("interrupted; nothing was kept")
        if costs is None:
            raise UsageError(
                f"{runtime.info.name} is decoded plainly: "
                f"{runtime.info.speculation.reason or 'there is nothing to tune'}"
            )
        runtime.keep_costs()
        threads = runtime.info.threads
    chosen = _chosen(costs)
    if as_json:
        found = {
            "threads": threads,
            "verify": {str(n): s for n, s in costs.curve().items()},
            "draft": costs.drafts(),
            "chosen": chosen,
        }
        write_json(found)
        return 0
    for line in _lines(costs, chosen, threads):
        write_line(line)
    return 0


def _chosen(costs: Costs) -> list[dict[str, float]]:
    """What the best draft length for all rounds would be, by acceptance."""
    from localspec.bench.theory import best_fixed

    cost = max(costs.drafts().values(), default=0.0)
    found = []
    for acceptance in _ACCEPTANCES:
        ratio, k = best_fixed([acceptance], costs.curve(), cost)
        found.append({"acceptance": acceptance, "draft_length": k, "times_plain": ratio})
    return found


def _lines(costs: Costs, chosen: list[dict[str, float]], threads: int) -> list[str]:
    curve = costs.curve()
    one = curve.get(1) or costs.verify(1)
    lines = [f"passes of the target on {threads} thread{'s' if threads > 1 else ''}:"]
    lines.append("  TOKENS       MS  × ONE  MS/TOKEN")
    lines += [
        f"  {n:>6} {1000 * s:>8.1f} {s / one:>6.2f} {1000 * s / n:>9.1f}" for n, s in curve.items()
    ]
    for source, seconds in costs.drafts().items():
        lines.append(
            f"a token drafted by {source}: {1000 * seconds:.2f} ms, "
            f"{seconds / one:.1%} of a plain one"
        )
    lines.append("best draft length, if it were the same in all rounds:")
    lines.append("  ACCEPTANCE   K  × PLAIN")
    lines += [
        f"  {c['acceptance']:>10.0%} {c['draft_length']:>3.0f} {c['times_plain']:>8.2f}"
        for c in chosen
    ]
    if max(c["times_plain"] for c in chosen) < 1.05:
        lines.append("nothing to gain from this draft on this machine: it will be parked")
    return lines
