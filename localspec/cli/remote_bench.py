"""``localspec bench --url``: the speed of a server, from this end of the wire."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from localspec.cli.containment import Unfinished
from localspec.cli.elsewhere import Servers
from localspec.cli.interrupt import CtrlC
from localspec.cli.output import in_lines, json_line, tell, write
from localspec.cli.working import Working

if TYPE_CHECKING:
    from localspec.bench.workloads import Workload
    from localspec.core.events import ModelInfo
    from localspec.core.sampling_params import Sampling
    from localspec.remote.blocking import BlockingClient
    from localspec.remote.client import RemoteClient
    from localspec.remote.measured import RemoteMeasured

_HEAD = "WORKLOAD     TEMP × PLAIN  TOK/S  FIRST TOKEN ACCEPTED TOK/ROUND"
_CLOCKS = {
    "engine": "speeds by the server's own clock",
    "request": "speeds of whole requests, with the reading of the prompt, by the clock of this end",
}


def bench(
    servers: Servers,
    workloads: Sequence[Workload],
    temperatures: Sequence[float],
    max_tokens: int,
    sampling: Sampling,
    *,
    as_json: bool,
) -> bool:
    """Measure a server and print the table; whether every workload was measured.

    Raises:
        LocalspecError: a server does not answer.
    """
    from localspec.bench.measuring import RemoteMeasuring

    with (
        CtrlC() as ctrl_c,
        servers.connected(lambda: ctrl_c.pressed, sampling) as (engine, plain),
        Unfinished() as unfinished,
    ):
        _hear(ctrl_c, engine, plain)
        facts = _facts(engine.info, engine.client.server, servers.plain_url)
        measuring = RemoteMeasuring(
            engine,
            workloads,
            temperatures,
            max_tokens=max_tokens,
            sampling=sampling,
            plain=plain,
        )
        for notice in dict.fromkeys(engine.info.notices + (plain.info.notices if plain else ())):
            tell(notice)
        working = Working(ctrl_c)
        if not as_json:
            write(in_lines([_HEAD]))
        shown = 0
        for step in measuring.steps():
            shown = _show(measuring.results, shown, working, as_json=as_json)
            if as_json:
                unfinished.hold(json_line(_report(measuring.results, facts, complete=False)))
            place = f"{step.stage}, prompt {step.prompt + 1} of {step.prompts}"
            working.tell("measuring", place)
        _show(measuring.results, shown, working, as_json=as_json)
        working.clear()
    if as_json:
        write(json_line(_report(measuring.results, facts)))
    else:
        write(in_lines(_closing(measuring.results, facts)))
    if engine.info.speculation.state == "off":
        tell(f"{engine.info.speculation.reason}: what is compared is no speculation")
    elif all(m.reported and not m.drafted for m in measuring.results if m.error is None):
        tell("the server drafted nothing: what is compared is no speculation")
    if not measuring.compares:
        tell("plain decoding is not measured: this server cannot switch; see --plain-url")
    return not any(m.error for m in measuring.results)


def _hear(ctrl_c: CtrlC, *clients: BlockingClient[RemoteClient] | None) -> None:
    """Have the first Ctrl-C end the replies of all clients."""

    def end() -> None:
        for client in clients:
            if client is not None:
                client.interrupt()

    ctrl_c.on_first = end


def _show(results: Sequence[RemoteMeasured], shown: int, working: Working, *, as_json: bool) -> int:
    """Print the rows that are new; their number now."""
    if not as_json and len(results) > shown:
        working.clear()
        write(in_lines(map(_row, results[shown:])))
    return len(results)


def _row(m: RemoteMeasured) -> str:
    if m.error is not None:
        return f"{m.workload:<12} {m.temperature:>4g} failed: {m.error}"
    ratio = ("-" if m.ratio is None else f"{m.ratio:.2f}") + "?" * bool(m.doubt)
    speed = "-" if m.speed is None else f"{m.speed:.0f}"
    first = "-" if m.first_seconds is None else f"{m.first_seconds:.3f} s"
    acceptance = "-" if m.acceptance is None else f"{m.acceptance:.0%}"
    per_round = "-" if m.tokens_per_round is None else f"{m.tokens_per_round:.2f}"
    return (
        f"{m.workload:<12} {m.temperature:>4g} {ratio:>7} {speed:>6} "
        f"{first:>11} {acceptance:>8} {per_round:>9}"
    )


def _closing(results: Sequence[RemoteMeasured], facts: dict[str, Any]) -> list[str]:
    sure = [m.ratio for m in results if m.ratio and not m.doubt and not m.error]
    doubted = [m for m in results if m.doubt]
    clocks = {_CLOCKS[m.clock] for m in results if m.clock is not None}
    lines = [
        "; ".join([f"{facts['engine']} with {facts['name']} at {facts['server']}", *sorted(clocks)])
    ]
    if sure:
        mean, of = statistics.geometric_mean(sure), f"{len(sure)} of {len(results)} rows"
        lines.insert(0, f"on average {mean:.2f} times plain decoding (geometric mean of {of})")
    for doubt in dict.fromkeys(m.doubt for m in doubted):
        rows = ", ".join(f"{m.workload} {m.temperature:g}" for m in doubted if m.doubt == doubt)
        lines.append(f"? {rows}: {doubt}; more may help: -n")
    if any(m.speed is None and m.error is None for m in results):
        lines.append("-: too few tokens or seconds for a figure; -n asks for longer replies")
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
