"""``localspec bench``: plain against speculative decoding, side by side."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.flags import model_flags, sampling_flags, sort_flags
from localspec.cli.interrupt import CtrlC
from localspec.cli.texts import write
from localspec.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from localspec.bench import Bench
    from localspec.events import ModelInfo
    from localspec.workloads import Workload

_TEMPERATURES = (0.0, 1.0)
_MAX_TOKENS = 96


@click.command("bench")
@click.argument("model", required=False)
@click.option("--workload", "names", multiple=True, metavar="NAME", help="Only this; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object instead of a table.")
@model_flags
@sampling_flags
def command(model: str | None, names: tuple[str, ...], *, as_json: bool, **flags: Any) -> int:
    """Measure what drafting gains on this machine, per kind of work, at temperatures 0 and 1 or -t.

    Ratios are medians over prompts, plain and drafted runs alternating in one process.
    """
    from localspec.bench import bench
    from localspec.runtime import Runtime

    asked = sort_flags(model, flags)
    chosen = _chosen(names)
    source = click.get_current_context().get_parameter_source("temperature")
    given = source is not click.core.ParameterSource.DEFAULT

    with CtrlC() as ctrl_c:

        def progress(what: str) -> None:
            if ctrl_c.pressed:
                raise Interrupted("interrupted; nothing was concluded")
            if sys.stderr.isatty():
                click.echo(f"\r{what:<40}", err=True, nl=False)

        with Runtime.open(asked.options, cancelled=lambda: ctrl_c.pressed) as runtime:
            ctrl_c.on_first = runtime.interrupt
            for notice in runtime.info.notices:
                click.echo(f"localspec: {notice}", err=True)
            result = bench(
                runtime,
                chosen,
                (asked.sampling.temperature,) if given else _TEMPERATURES,
                max_tokens=asked.max_tokens or _MAX_TOKENS,
                on_progress=progress,
            )
            info = runtime.info
        if ctrl_c.pressed:
            raise Interrupted("interrupted; nothing was concluded")
    if sys.stderr.isatty():
        click.echo("\r" + " " * 40 + "\r", err=True, nl=False)
    if as_json:
        write(json.dumps(report(result, info), ensure_ascii=False) + "\n")
    else:
        for line in _lines(result):
            write(line + "\n")
    return 0


def _chosen(names: tuple[str, ...]) -> list[Workload]:
    from localspec.workloads import WORKLOADS

    known = {w.name: w for w in WORKLOADS}
    for name in names:
        if name not in known:
            raise UsageError(f"no workload called {name!r}; there are: {', '.join(known)}")
    return [known[name] for name in names] or list(WORKLOADS)


def report(result: Bench, info: ModelInfo) -> dict[str, Any]:
    """The object that ``bench --json`` prints."""
    return {
        "results": [dataclasses.asdict(m) | {"ratio": m.ratio} for m in result.results],
        "spread": result.spread,
        "noisy": result.noisy,
        "model": {"target": info.target, "draft": info.draft, "backend": info.backend},
        "threads": info.threads,
    }


def _lines(result: Bench) -> list[str]:
    lines = ["WORKLOAD      TEMP  × PLAIN  (MIN-MAX)     TOK/S  ACCEPTED  TOK/ROUND  OUTSIDE"]
    lines += [
        f"{m.workload:<12} {m.temperature:>5g} {m.ratio:>8.2f}  "
        f"({min(m.ratios):.2f}-{max(m.ratios):.2f}) {m.speed:>9.0f} {m.acceptance:>9.0%} "
        f"{m.tokens_per_round:>10.2f} {m.outside:>8.0%}{'  parked' if m.parked else ''}"
        for m in result.results
    ]
    lines.append(
        f"plain speed varied by {result.spread:.0%} between equal runs"
        + (": too much to conclude anything; run it on a quiet machine" if result.noisy else "")
    )
    return lines
