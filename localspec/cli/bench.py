"""``localspec bench``: plain against speculative decoding, side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.flags import model_argument, model_flags, sampling_flags, sort_flags
from localspec.cli.interrupt import CtrlC
from localspec.cli.output import say_over, tell, write_json, write_line
from localspec.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from localspec.bench.history import Past
    from localspec.bench.peers import Setting
    from localspec.bench.workloads import Workload
    from localspec.core.events import ModelInfo
    from localspec.loading.options import Options
    from localspec.runtime import Runtime

_TEMPERATURES = (0.0, 1.0)
_MAX_TOKENS = 96
_PEER_LENGTH = 3
"""llama.cpp's own default."""


@click.command("bench")
@model_argument
@click.option("--workload", "names", multiple=True, metavar="NAME", help="Only this; repeatable.")
@click.option("--details", is_flag=True, help="Acceptance by position, lengths, formula.")
@click.option("--history", is_flag=True, help="Compare with the last run of the same setting.")
@click.option("--plot", type=Path, metavar="FILE", help="A picture; needs matplotlib.")
@click.option(
    "--against", "peers", multiple=True, metavar="NAME[=PATH]", help="Measure a peer too."
)
@click.option(
    "--against-k", "lengths", type=click.IntRange(1, 64), multiple=True, help="Its draft lengths."
)
@click.option("--json", "as_json", is_flag=True, help="A JSON object instead of a table.")
@model_flags
@sampling_flags
def command(
    model: str | None,
    names: tuple[str, ...],
    peers: tuple[str, ...],
    lengths: tuple[int, ...],
    plot: Path | None,
    *,
    details: bool,
    history: bool,
    as_json: bool,
    **flags: Any,
) -> int:
    """Measure what drafting gains on this machine, per kind of work, at temperatures 0 and 1 or -t.

    Ratios are medians over prompts, plain and drafted runs alternating in one process. Draft
    lengths are those that pay, unless --draft-max gives one.

    Peers (--against, repeatable) are llama-cpp-python, llama-server=PATH and
    llama-speculative-simple=PATH.
    """
    from localspec.bench.peers import compare
    from localspec.bench.speedup import bench
    from localspec.cli import bench_against, bench_report
    from localspec.runtime import Runtime

    asked = sort_flags(model, flags)
    options = asked.options
    chosen = _chosen(names)
    if plot is not None:
        bench_report.require_matplotlib()
    bench_against.modes(peers, lengths, "model")  # a typo is told before the model is loaded
    temperatures = (asked.sampling.temperature,) if _given("temperature") else _TEMPERATURES
    max_tokens = asked.max_tokens or _MAX_TOKENS
    with CtrlC() as ctrl_c:
        progress = _progress(ctrl_c)
        with Runtime.open(options, cancelled=lambda: ctrl_c.pressed) as runtime:
            ctrl_c.on_first = runtime.interrupt
            info = runtime.info
            for notice in info.notices:
                tell(notice)
            computing = [name for name in info.drafters if name not in {"suffix", "ngram"}]
            modes = bench_against.modes(
                peers, lengths or (_PEER_LENGTH,), next(iter(computing), None)
            )
            result = bench(
                runtime, chosen, temperatures, max_tokens=max_tokens, on_progress=progress
            )
            compared = compare(
                runtime,
                _setting(runtime),
                modes,
                chosen,
                temperatures,
                max_tokens=max_tokens,
                on_progress=progress,
            )
        if ctrl_c.pressed:
            raise Interrupted("interrupted; nothing was concluded")
    say_over("", 60)
    past = _past(options, info, max_tokens, result)
    if as_json:
        found = bench_report.report(result, info, compared, past)
        write_json(found)
    else:
        lines = bench_report.table(result)
        if details:
            lines += ["", *bench_report.details(result)]
        if history:
            lines += ["", *bench_report.changes(result, past, info.threads)]
        for line in [*lines, *bench_report.peers(compared)]:
            write_line(line)
    if plot is not None:
        bench_report.plot(result, plot)
    return 0


def _given(flag: str) -> bool:
    source = click.get_current_context().get_parameter_source(flag)
    return source is not click.core.ParameterSource.DEFAULT


def _progress(ctrl_c: CtrlC) -> Callable[[str], None]:
    def progress(what: str) -> None:
        if ctrl_c.pressed:
            raise Interrupted("interrupted; nothing was concluded")
        say_over(what, 60)

    return progress


def _setting(runtime: Runtime) -> Setting:
    from localspec.bench.peers import Setting

    info = runtime.info
    return Setting(
        target=Path(info.target),
        draft=Path(info.draft) if info.draft is not None else None,
        threads=info.threads,
        context=info.context,
        gpu=info.backend != "cpu",
        ends=runtime.ends,
    )


def _past(options: Options, info: ModelInfo, max_tokens: int, result: Any) -> Past | None:
    """The last run of this setting; this one is added to the book."""
    from localspec.bench import history as bench_history
    from localspec.config import paths

    book = paths.state_dir() / "bench" / "history.jsonl"
    asked = dataclasses.replace(options, model=info.target, draft=info.draft)
    setting = f"{asked} {info.backend}, {max_tokens} tokens"
    past = bench_history.last(book, setting)
    try:
        bench_history.add(book, setting, result, threads=info.threads)
    except OSError as error:
        tell(f"this run cannot be kept for --history: {error.strerror}")
    return past


def _chosen(names: tuple[str, ...]) -> list[Workload]:
    from localspec.bench.workloads import WORKLOADS

    known = {w.name: w for w in WORKLOADS}
    for name in names:
        if name not in known:
            raise UsageError(f"no workload called {name!r}; there are: {', '.join(known)}")
    return [known[name] for name in names] or list(WORKLOADS)
