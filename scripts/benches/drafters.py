"""Every drafter alone and the default cascade, over all kinds of work, as two Markdown tables.

The target, the draft model and the heads are those that make_pair and make_heads leave
in the cache. Ratios are medians over prompts, plain and drafted replies alternating in one process.
The controller chooses the lengths; a drafter that never pays remains parked.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec import Options, Runtime
from localspec.bench.speedup import Bench, bench
from localspec.bench.workloads import WORKLOADS
from localspec.core.errors import LocalspecError
from localspec.core.files.paths import cache_dir

_TEMPERATURES = (0.0, 1.0)


@dataclass(frozen=True)
class Setting:
    """A row of the tables."""

    name: str
    options: Options


def settings(folder: Path, size: str, draft: str) -> Iterator[Setting]:
    """All drafters whose files exist."""
    target = folder / f"target-{size}gb.gguf"
    files = {
        "model": folder / f"draft-{draft}gb.gguf",
        "eagle3": folder / f"{target.stem}-eagle3.gguf",
        "medusa": folder / f"{target.stem}-medusa.gguf",
    }
    whole = folder / f"{target.stem}-mtp.gguf"

    def options(model: Path, file: Path | None, *drafters: str) -> Options:
        draft = "none" if file is None else str(file)
        return Options(str(model), draft, drafter=drafters or None)

    yield Setting("suffix,model", options(target, files["model"]))
    for name in ("suffix", "ngram", "lookahead"):
        yield Setting(name, options(target, None, name))
    for name in ("model", "tree"):
        yield Setting(name, options(target, files["model"], name))
    for name in ("eagle3", "medusa"):
        if files[name].is_file():
            yield Setting(name, options(target, files[name], name))
    if whole.is_file():
        yield Setting("mtp", Options(str(whole), drafter=("mtp",)))


def speeds(found: dict[str, Bench], temperatures: Sequence[float]) -> Iterator[str]:
    """Table of speeds against plain decoding, one row per drafter."""
    names = [w.name for w in WORKLOADS]
    yield "| drafter | T | " + " | ".join(names) + " | mean |"
    yield "|---" * (len(names) + 3) + "|"
    for name, result in found.items():
        for t in temperatures:
            ratios = [m.ratio for m in result.results if m.temperature == t]
            cells = [f"{ratio:.2f}" for ratio in ratios]
            mean = statistics.geometric_mean(ratios)
            yield f"| `{name}` | {t:g} | " + " | ".join(cells) + f" | {mean:.2f} |"


def acceptance(found: dict[str, Bench], temperatures: Sequence[float]) -> Iterator[str]:
    """Table of acceptance and tokens per round, over all kinds of work."""
    yield "| drafter | T | accepted of verified | tokens per round | spread of plain |"
    yield "|---|---|---|---|---|"
    for name, result in found.items():
        for t in temperatures:
            here = [m for m in result.results if m.temperature == t]
            drafting = [m.acceptance for m in here if any(m.lengths.get(k) for k in m.lengths if k)]
            accepted = f"{statistics.mean(drafting):.0%}" if drafting else "parked"
            rounds = statistics.mean(m.tokens_per_round for m in here)
            yield f"| `{name}` | {t:g} | {accepted} | {rounds:.2f} | {result.spread:.0%} |"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=cache_dir() / "bench")
    parser.add_argument("--gb", default="1", help="of the target")
    parser.add_argument("--draft-gb", default="0.06", help="of the draft model")
    parser.add_argument("-n", type=int, default=48, help="tokens of a reply, at most")
    parser.add_argument("--only", help="one drafter by name")
    parser.add_argument(
        "-t",
        "--temperature",
        type=float,
        action="append",
        dest="temperatures",
        help="0 and 1 if not given; may be repeated",
    )
    arguments = parser.parse_args()
    temperatures = tuple(arguments.temperatures or _TEMPERATURES)
    found: dict[str, Bench] = {}
    for setting in settings(arguments.folder, arguments.gb, arguments.draft_gb):
        if arguments.only not in {None, setting.name}:
            continue
        try:
            with Runtime.open(setting.options) as runtime:
                for notice in runtime.info.notices:
                    print(f"{setting.name}: {notice}", file=sys.stderr)
                found[setting.name] = bench(
                    runtime,
                    WORKLOADS,
                    temperatures,
                    max_tokens=arguments.n,
                    on_progress=lambda what, name=setting.name: print(  # type: ignore[misc]
                        f"\r{name}: {what:<50}", end="", file=sys.stderr
                    ),
                )
        except LocalspecError as error:
            print(f"{setting.name}: {error}", file=sys.stderr)
            return 1
        print(file=sys.stderr)
    print("\n".join([*speeds(found, temperatures), "", *acceptance(found, temperatures)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
