"""The speed of drafting against plain decoding by the length of the reply, from the first one on.

Sides alternate: plain, drafted, plain. The two plain runs of a prompt say how much equal runs
differ. A reply that ends by itself may be shorter than its length; ``--long`` forbids the ends.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from localspec import Options, Runtime, Sampling
from localspec.bench.speedup import answer
from localspec.bench.workloads import WORKLOADS

_LENGTHS = (8, 16, 32, 64, 128, 512)


def ratios(
    runtime: Runtime, prompts: Sequence[str], length: int, sampling: Sampling
) -> tuple[list[float], list[float]]:
    """(Drafted by plain, plain by plain) tokens a second, by prompt."""
    found, noise = [], []
    for seed, prompt in enumerate(prompts):
        speeds = [
            answer(
                runtime, prompt, sampling, seed, length, draft=draft
            ).reply.stats.tokens_per_second
            for draft in (False, True, False)
        ]
        found.append(2 * speeds[1] / (speeds[0] + speeds[2]))
        noise.append(speeds[2] / speeds[0])
    return found, noise


class Saved:
    """Figures by length in a file of JSON, so that a run that was stopped goes on where it was."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._found: dict[str, tuple[list[float], list[float]]] = {}
        if path is not None and path.exists():
            self._found = json.loads(path.read_text())

    def of(self, length: int) -> tuple[list[float], list[float]] | None:
        """(Drafted by plain, plain by plain), if that length was measured."""
        return self._found.get(str(length))

    def keep(self, length: int, found: list[float], noise: list[float]) -> None:
        """Write them down."""
        self._found[str(length)] = found, noise
        if self._path is not None:
            self._path.write_text(json.dumps(self._found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--draft")
    parser.add_argument("--drafter", help="drafters, separated by commas")
    parser.add_argument("-t", "--temperature", type=float, default=0.0)
    parser.add_argument("-n", "--length", type=int, action="append")
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--long", action="store_true", help="forbid the end of replies")
    parser.add_argument(
        "--save", type=Path, help="write each length's figures here, and skip those that it has"
    )
    args = parser.parse_args()
    prompts = [prompt for group in zip(*(w.prompts for w in WORKLOADS), strict=True)
               for prompt in group][: args.prompts]  # fmt: skip
    names = tuple(args.drafter.split(",")) if args.drafter else None
    options = Options(model=args.model, draft=args.draft, **({"drafter": names} if names else {}))
    saved = Saved(args.save)
    print("tokens   mean  least   10 %   mean of plain by plain, spread")
    with Runtime.open(options) as runtime:
        ends = sorted(runtime.ends) if args.long else []
        bias = tuple((token, -math.inf) for token in ends)
        sampling = Sampling(temperature=args.temperature, logit_bias=bias)
        for length in args.length or _LENGTHS:
            found, noise = saved.of(length) or ratios(runtime, prompts, length, sampling)
            saved.keep(length, found, noise)
            tenth = statistics.quantiles(found, n=10, method="inclusive")[0]
            print(
                f"{length:6} {statistics.mean(found):6.2f} {min(found):6.2f} {tenth:6.2f} "
                f"{statistics.mean(noise):10.2f} {statistics.pstdev(noise):10.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
