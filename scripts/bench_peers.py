"""Our speed beside the best setting of other programs, found by trying every draft length.

Rows are printed and stored as they are measured; the same command continues where it was stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from localspec import Options, Runtime
from localspec.bench.peers import Compared, Mode, Setting, comparisons
from localspec.bench.workloads import WORKLOADS, Workload
from localspec.cli.bench_against import modes

_LENGTHS = (1, 2, 3, 4, 5, 7, 11, 15)


class Results:
    """Rows in a file, one JSON object a line."""

    def __init__(self, path: Path, setting: str) -> None:
        self._path, self._setting = path, setting
        self.rows: list[Compared] = []
        for line in path.read_text().splitlines() if path.exists() else ():
            saved = json.loads(line)
            if saved.pop("setting") == setting:
                self.rows.append(Compared(**saved))

    def has(self, mode: Mode, workload: Workload, temperature: float) -> bool:
        """Whether that was measured before."""
        asked = mode.name, workload.name, temperature
        return any((r.peer, r.workload, r.temperature) == asked for r in self.rows)

    def add(self, row: Compared) -> None:
        """Store a row."""
        with self._path.open("a") as file:
            saved = {"setting": self._setting, **dataclasses.asdict(row)}
            file.write(json.dumps(saved) + "\n")
        self.rows.append(row)


def measure(
    runtime: Runtime,
    setting: Setting,
    programs: Sequence[Mode],
    temperatures: Sequence[float],
    max_tokens: int,
    results: Results,
) -> None:
    """Measure what is missing."""
    for mode in programs:
        for temperature in temperatures:
            missing = [w for w in WORKLOADS if not results.has(mode, w, temperature)]
            if not missing:
                continue
            for row in comparisons(
                runtime, setting, [mode], missing, [temperature], max_tokens=max_tokens
            ):
                results.add(row)
                print(
                    f"{row.peer:28} T {row.temperature:g} {row.workload:14} {row.ratio:5.2f} "
                    f"ours {row.ours:5.2f} times plain, {row.same}/{row.prompts} same text",
                    flush=True,
                )


def report(rows: Sequence[Compared]) -> None:
    """The best setting of the others for each workload, and ours beside it."""
    print("\nworkload        T   best of others                ratio   ours   ours by theirs")
    for temperature in sorted({r.temperature for r in rows}):
        shares = []
        for workload in dict.fromkeys(r.workload for r in rows):
            found = [r for r in rows if (r.workload, r.temperature) == (workload, temperature)]
            if not found:
                continue
            best = max(found, key=lambda r: r.ratio)
            ours = statistics.median(r.ours for r in found)
            shares.append(ours / best.ratio)
            print(
                f"{workload:14} {temperature:3g}   {best.peer:28} {best.ratio:6.2f} {ours:6.2f} "
                f"{shares[-1]:8.2f}"
            )
        print(f"{'mean':14} {temperature:3g} {statistics.geometric_mean(shares):59.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--draft", help="draft model; by default the one that belongs to it")
    parser.add_argument(
        "--against", action="append", required=True, help="as for `localspec bench`"
    )
    parser.add_argument("--k", type=int, action="append", help="draft lengths; default 1 to 15")
    parser.add_argument("-t", "--temperature", type=float, action="append")
    parser.add_argument("-n", "--max-tokens", type=int, default=256)
    parser.add_argument("--out", type=Path, default=Path("bench-peers.jsonl"))
    args = parser.parse_args()
    options = Options(model=args.model, draft=args.draft)
    with Runtime.open(options) as runtime:
        info = runtime.info
        programs = modes(args.against, args.k or _LENGTHS, "model" if info.draft else None)
        setting = Setting(
            target=Path(info.target),
            draft=Path(info.draft) if info.draft else None,
            threads=info.threads,
            context=info.context,
            gpu=info.backend != "cpu",
            ends=runtime.ends,
        )
        what = f"{info.target} {info.draft} {info.backend} {info.threads} {args.max_tokens}"
        results = Results(args.out, what)
        temperatures = args.temperature or [0.0, 1.0]
        measure(runtime, setting, programs, temperatures, args.max_tokens, results)
    report(results.rows)


if __name__ == "__main__":
    main()
