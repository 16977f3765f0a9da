"""Earlier runs of the benchmark, to compare with: one line of JSON each, newest last."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localspec.bench.speedup import Bench
from localspec.core.files import measured, paths
from localspec.core.files.private import opener

FORMAT = 1
_LARGEST = 64 << 20


@dataclass(frozen=True, slots=True)
class Past:
    """An earlier run of the same pair on the same setting."""

    when: str
    """Date and time, UTC."""
    threads: int | None
    """CPU threads it ran on; None: not noted."""
    ratios: Mapping[tuple[str, float], float]
    """(Workload, temperature) -> ratio to plain decoding."""


def last(path: Path, setting: str) -> Past | None:
    """The latest run of ``setting``; lines that cannot be read are passed over."""
    try:
        lines = measured.content(path, _LARGEST).decode().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in reversed(lines):
        try:
            run = json.loads(line)
            if run["format"] != FORMAT or run["setting"] != setting:
                continue
            ratios = {
                (str(r["workload"]), float(r["temperature"])): float(r["ratio"])
                for r in run["results"]
            }
            threads = run.get("threads")
            return Past(str(run["when"]), threads if isinstance(threads, int) else None, ratios)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue
    return None


def add(path: Path, setting: str, result: Bench, *, threads: int) -> None:
    """Append a run; ``threads`` is stored separately, since a measured number may differ each time.

    Raises:
        OSError: it cannot be written.
    """
    now = datetime.datetime.now(datetime.UTC)
    run = {
        "format": FORMAT,
        "when": now.strftime("%Y-%m-%d %H:%M"),
        "setting": setting,
        "threads": threads,
        "results": [
            {"workload": m.workload, "temperature": m.temperature, "ratio": round(m.ratio, 4)}
            for m in result.results
        ],
    }
    paths.make_parent(path)
    with open(path, "a", encoding="utf-8", opener=opener) as file:
        file.write(json.dumps(run) + "\n")
