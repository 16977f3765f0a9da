"""``localspec bench --url``: the speed of a server, from this end of the wire."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from localspec.cli import elsewhere
from localspec.cli.containment import Unfinished
from localspec.cli.interrupt import CtrlC
from localspec.cli.output import in_lines, json_line, tell, write
from localspec.cli.working import Working

if TYPE_CHECKING:
    from localspec.bench.workloads import Workload
    from localspec.core.events import ModelInfo
    from localspec.remote.measuring import RemoteMeasured

_HEAD = "WORKLOAD     TEMP × PLAIN  TOK/S  FIRST TOKEN ACCEPTED TOK/ROUND"


def bench(
    url: str,
    plain_url: str | None,
    model: str | None,
    workloads: Sequence[Workload],
    temperatures: Sequence[float],
    max_tokens: int,
    *,
    as_json: bool,
) -> None:
    """Measure a server and print the table.

    Raises:
        LocalspecError: a server does not answer, or refuses.
    """
    from localspec.remote.measuring import RemoteMeasuring

    with (
        CtrlC() as ctrl_c,
        elsewhere.compared(url, plain_url, model, lambda: ctrl_c.pressed) as (engine, plain),
        Unfinished() as unfinished,
    ):
        ctrl_c.on_first = engine.interrupt
        facts = _facts(engine.info, engine.client.server, plain_url)
        measuring = RemoteMeasuring(
            engine, workloads, temperatures, max_tokens=max_tokens, plain=plain
        )
        working = Working(ctrl_c)
        if not as_json:
            write(in_lines([_HEAD]))
        shown = 0
        for step in measuring.steps():
            shown = _show(measuring.results, shown, working, as_json=as_json)
            if as_json:
                unfinished.hold(json_line(_report(measuring.results, facts, complete=False)))
            where = f"{step.workload}, temperature {step.temperature:g}"
            working.tell("measuring", f"{where}, prompt {step.prompt + 1} of {step.prompts}")
        _show(measuring.results, shown, working, as_json=as_json)
        working.clear()
        unfinished.hold("")
    if as_json:
        write(json_line(_report(measuring.results, facts)))
    else:
        write(in_lines(_closing(measuring.results, facts)))
    if not measuring.compares:
        tell("plain decoding is not measured: this server cannot switch; see --plain-url")


def _show(results: Sequence[RemoteMeasured], shown: int, working: Working, *, as_json: bool) -> int:
    """Print the rows that are new; their number now."""
    if not as_json and len(results) > shown:
        working.clear()
        write(in_lines(map(_row, results[shown:])))
    return len(results)


def _row(m: RemoteMeasured) -> str:
    ratio = "-" if m.ratio is None else f"{m.ratio:.2f}"
    acceptance = "-" if m.acceptance is None else f"{m.acceptance:.0%}"
    per_round = "-" if m.tokens_per_round is None else f"{m.tokens_per_round:.2f}"
    return (
        f"{m.workload:<12} {m.temperature:>4g} {ratio:>7} {m.speed:>6.0f} "
        f"{m.first_seconds:>9.3f} s {acceptance:>8} {per_round:>9}"
    )


def _closing(results: Sequence[RemoteMeasured], facts: dict[str, Any]) -> list[str]:
    known = [m.ratio for m in results if m.ratio is not None]
    lines = [f"{facts['engine']} with {facts['name']} at {facts['server']}; times of this end"]
    if known:
        lines.insert(0, f"on average {sum(known) / len(known):.2f} times plain decoding")
    if any(m.reported and m.drafted and not m.verified for m in results):
        lines.append("ACCEPTED is of all drafted tokens: this server does not count verified ones")
    if not all(m.reported for m in results):
        lines.append("this server does not report its speculation")
    return lines


def _facts(info: ModelInfo, server: str, plain: str | None) -> dict[str, Any]:
    return {"server": server, "plain": plain, "engine": info.backend, "name": info.name}


def _report(
    results: Sequence[RemoteMeasured], facts: dict[str, Any], *, complete: bool = True
) -> dict[str, Any]:
    """The object of ``--json``."""
    return {
        "complete": complete,
        "results": [
            dataclasses.asdict(m)
            | {"acceptance": m.acceptance, "tokens_per_round": m.tokens_per_round}
            for m in results
        ],
        "model": facts,
    }


__all__ = ["bench"]
