"""Decode speed: of `run`, and of the chat."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import psutil

from benches.interface_cost.terminal import ROOT, measured
from localspec.cli.flags import SharedFlags, model_flags, sampling_flags, sort_flags

_THINGS = (
    "dog cat horse cow sheep goat pig hen duck goose bird fish frog fox bear wolf lion tiger "
    "mouse rabbit tree house river stone door window table chair lamp book bread apple milk "
    "water salt sugar king queen boy girl town road bridge ship boat train car wheel clock "
    "bell song game ball hat coat shoe ring cup plate spoon fork knife garden flower grass "
    "leaf hill lake sea sky star"
)
PROMPT = f"Turn this into a numbered list: {', '.join(_THINGS.split())}"
"""The embedded model is brief; this makes it say a hundred tokens."""
TOKENS = "BENCH_INTERFACE_TOKENS"
"""Variable with the number of tokens of a reply."""


def _flags() -> list[str]:
    return ["-t", "0", "-n", os.environ.get(TOKENS, "256"), "--seed", "1"]


Sample = Mapping[str, float]
"""Tokens per second, and CPU milliseconds per token of each process."""


@click.command()
@model_flags
@sampling_flags
def _sorted(**_: object) -> None:
    """The flags that a reply is asked with."""


def asked(model: str) -> SharedFlags:
    """The request that `run` would make, from its variables and config.toml."""
    return sort_flags(model, _sorted.make_context("bench", _flags()).params)


def of_run(model: str) -> Sample:
    """In one process, its text going to a file."""
    command = [sys.executable, "-m", "localspec", "run", "-m", model, "--json", *_flags(), PROMPT]
    done = subprocess.run(command, capture_output=True, check=True, cwd=ROOT)
    return {"speed": float(json.loads(done.stdout)["stats"]["tokens_per_second"])}


def of_chat(script: Path, model: str) -> Sample:
    """In the engine process, shown in the interface."""
    found = measured(script, "real", "0", model)
    return {
        "speed": found["tokens_per_second"],
        "engine CPU ms": found["engine_cpu_ms"],
        "interface CPU ms": found["cpu_ms"],
    }


def cpu(pid: int | None) -> float:
    """Seconds of CPU that a process has used."""
    if pid is None:
        return 0.0
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def compare(script: Path, model: str, times: int) -> None:
    """Print the speeds, measured in turn, there and back, so that a drift meets all alike."""
    ways: dict[str, Callable[[], Sample]] = {
        "`run`": lambda: of_run(model),
        "chat": lambda: of_chat(script, model),
    }
    found: dict[str, list[Sample]] = {name: [] for name in ways}
    for i in range(times):
        for name in ways if i % 2 == 0 else reversed(ways):
            found[name].append(ways[name]())
    print("\n| decoding in | tok/s, median | beside `run`, median of pairs | each | CPU ms/token |")
    print("|---|---|---|---|---|")
    for name, samples in found.items():
        speeds = [sample["speed"] for sample in samples]
        beside = [100 * (b / a["speed"] - 1) for a, b in zip(found["`run`"], speeds, strict=True)]
        costs = [
            f"{key.removesuffix(' CPU ms')} {statistics.median(s[key] for s in samples):.2f}"
            for key in samples[0]
            if key != "speed"
        ]
        print(
            f"| {name} | {statistics.median(speeds):.1f} | {statistics.median(beside):+.1f} % "
            f"| {', '.join(f'{speed:.1f}' for speed in speeds)} | {', '.join(costs)} |",
            flush=True,
        )
