"""``localspec bench``: plain against speculative decoding, side by side."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.containment import Unfinished, contain
from localspec.cli.elsewhere import Servers, plain_url_flag, url_flag
from localspec.cli.flags import (
    REPLIES,
    SharedFlags,
    chosen,
    flags_of,
    model_argument,
    model_flags,
    sort_flags,
)
from localspec.cli.images import image_flag, read_images, require_messages
from localspec.cli.interrupt import CtrlC
from localspec.cli.output import tell
from localspec.cli.working import Working, open_runtime
from localspec.core.drafter_registry import computing
from localspec.core.errors import UsageError
from localspec.core.sampling_params import Sampling

if TYPE_CHECKING:
    from localspec.bench.history import Past
    from localspec.bench.peers import Setting
    from localspec.bench.speedup import Bench
    from localspec.bench.workloads import Workload
    from localspec.core.events import ModelInfo
    from localspec.runtime import Runtime

_TEMPERATURES = (0.0, 1.0)
_MAX_TOKENS = 96
_SEED = 0
_PEER_LENGTH = 3
"""llama.cpp's own default."""


@click.command("bench")
@model_argument
@click.option(
    "--workload",
    "names",
    multiple=True,
    metavar="NAME",
    help="Run only this workload; may be repeated.",
)
@click.option(
    "--details", is_flag=True, help="Also print acceptance by position and draft lengths."
)
@click.option("--history", is_flag=True, help="Compare with the last run of the same settings.")
@click.option("--plot", type=Path, metavar="FILE", help="Write a plot; needs matplotlib.")
@click.option(
    "--against",
    "peers",
    multiple=True,
    metavar="NAME[=PATH]",
    help="Measure another program too; may be repeated.",
)
@click.option(
    "--against-k",
    "lengths",
    type=click.IntRange(1, 64),
    multiple=True,
    help="Draft lengths of that program; may be repeated.",
)
@image_flag
@url_flag
@plain_url_flag
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of a table.")
@model_flags
@flags_of(REPLIES, temperature="0 and 1", seed=str(_SEED), max_tokens=str(_MAX_TOKENS))
def command(
    model: str | None,
    names: tuple[str, ...],
    peers: tuple[str, ...],
    lengths: tuple[int, ...],
    plot: Path | None,
    images: tuple[str, ...],
    *,
    details: bool,
    history: bool,
    url: str | None,
    plain_url: str | None,
    as_json: bool,
    **flags: Any,
) -> int:
    """Measure the speed-up of drafting on this machine for several workloads.

    Temperatures are 0 and 1, or the one that is set. Ratios are medians over prompts; plain and
    drafted runs alternate in one process. Draft lengths are chosen by measurement unless
    --draft-max is given.

    Programs for --against are llama-cpp-python, llama-server=PATH and
    llama-speculative-simple=PATH.
    """
    pictures, servers = read_images(images), Servers.named(url, plain_url, model)
    require_messages(pictures, raw=False, url=url)
    if pictures and peers:
        raise UsageError("--against compares texts alone; leave out --image")
    if servers is not None:
        _require_local(details=details, history=history, peers=peers, plot=plot)
        return _elsewhere(servers, names, flags, as_json=as_json)
    contain()
    from localspec.bench.peers import comparisons, require_common
    from localspec.bench.speedup import Measuring
    from localspec.cli import bench_against, bench_report

    asked = sort_flags(model, flags)
    options = dataclasses.replace(asked.options, sees=bool(pictures))
    if peers:
        require_common(asked.sampling)
    workloads = _chosen(names, tools=not (peers or pictures))
    if plot is not None:
        bench_report.require_matplotlib()
    bench_against.modes(peers, lengths, "model")  # report a typo before the model is loaded
    temperatures = (asked.sampling.temperature,) if chosen("temperature") else _TEMPERATURES
    max_tokens = asked.max_tokens or _MAX_TOKENS
    with CtrlC() as ctrl_c, open_runtime(options, lambda: ctrl_c.pressed) as runtime:
        ctrl_c.on_first = runtime.interrupt
        for notice in runtime.info.notices:
            tell(notice)
        info = runtime.info
        own = next(iter(computing(info.drafters)), None)
        modes = bench_against.modes(peers, lengths or (_PEER_LENGTH,), own)
        measuring = Measuring(
            runtime,
            workloads,
            temperatures,
            max_tokens=max_tokens,
            sampling=asked.sampling,
            seed=_SEED if asked.seed is None else asked.seed,
            pictures=pictures,
        )
        working = Working(ctrl_c)
        with Unfinished() as unfinished:
            rows = (
                bench_report.JsonRows(unfinished, working, info)
                if as_json
                else bench_report.TextRows(
                    unfinished,
                    working,
                    expected=len(workloads) * len(temperatures),
                    details=details,
                    history=history,
                    threads=info.threads,
                )
            )
            working.tell("measuring how much equal runs differ")
            for step in measuring.steps():
                rows.grown(measuring.so_far())
                working.tell(step.stage, f"prompt {step.prompt + 1} of {step.prompts}")
            result = measuring.so_far()
            rows.done(result, _past(dataclasses.replace(asked, options=options), info, result))
            compared = []
            for row in comparisons(
                runtime,
                _setting(runtime),
                [bench_against.interruptible(mode, ctrl_c) for mode in modes],
                workloads,
                temperatures,
                max_tokens=max_tokens,
                sampling=asked.sampling,
                seed=_SEED if asked.seed is None else asked.seed,
                progress=working,
            ):
                compared.append(row)
                rows.compared(compared)
            rows.end()
    if plot is not None:
        bench_report.plot(result, plot)
    return 0


def _require_local(**given: object) -> None:
    """Refuse what only a model of this machine has.

    Raises:
        UsageError: it was asked for.
    """
    flags = {"peers": "--against", "plot": "--plot"}
    for name, value in given.items():
        if value:
            flag = flags.get(name, f"--{name}")
            raise UsageError(f"{flag} is for a model that is loaded here; leave it out with --url")


def _elsewhere(
    servers: Servers, names: tuple[str, ...], flags: dict[str, Any], *, as_json: bool
) -> int:
    """Measure a server."""
    from localspec.cli.remote_bench import bench

    asked = sort_flags(servers.model, flags)
    temperatures = (asked.sampling.temperature,) if chosen("temperature") else _TEMPERATURES
    most = asked.max_tokens or _MAX_TOKENS
    workloads, sampling = _chosen(names, tools=False), asked.sampling
    whole = bench(servers, workloads, temperatures, most, sampling, as_json=as_json)
    return 0 if whole else 1


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


def _past(flags: SharedFlags, info: ModelInfo, result: Bench) -> Past | None:
    """The last run of these settings; the present one is added to the history."""
    from localspec.bench import history as bench_history
    from localspec.core.files import paths

    book = paths.state_dir() / "bench" / "history.jsonl"
    asked = dataclasses.replace(flags.options, model=info.target, draft=info.draft)
    setting = f"{asked} {info.backend}, {flags.max_tokens or _MAX_TOKENS} tokens"
    # Rows name their temperatures.
    usual = Sampling(temperature=flags.sampling.temperature)
    if flags.sampling != usual or flags.seed:
        setting += f", {dataclasses.replace(flags.sampling, temperature=0.0)}, seed {flags.seed}"
    past = bench_history.last(book, setting)
    try:
        bench_history.add(book, setting, result, threads=info.threads)
    except OSError as error:
        tell(f"this run cannot be saved for --history: {error.strerror}")
    return past


def _chosen(names: tuple[str, ...], *, tools: bool) -> list[Workload]:
    """The workloads of those names, by default all; those with ``tools`` where they can be asked:
    other programs are asked texts alone.
    """
    from localspec.bench.tool_workloads import TOOL_WORKLOADS
    from localspec.bench.workloads import WORKLOADS

    known = {w.name: w for w in (*WORKLOADS, *(TOOL_WORKLOADS if tools else ()))}
    for name in names:
        if name not in known:
            raise UsageError(f"no workload called {name!r}; there are: {', '.join(known)}")
    return [known[name] for name in names] or list(known.values())
