"""The speed of drafting against plain decoding by the length of the reply, from the first one on.

Sides alternate: plain, drafted, plain. The two plain runs of a prompt say how much equal runs
differ. A reply that ends by itself may be shorter than its length; ``--long`` forbids the ends.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

from benches.shared.replies import add_pair, by_turns, pair, without
from localspec import Runtime, Sampling
from localspec.bench.speedup import answer
from localspec.bench.workloads import WORKLOADS

_LENGTHS = (8, 16, 32, 64, 128, 512)


def ratios(
    runtime: Runtime, prompts: Sequence[str], length: int, sampling: Sampling
) -> tuple[list[float], list[float]]:
    """(Drafted by plain, plain by plain) tokens a second, by prompt."""
    found, noise = [], []
    for seed, prompt in enumerate(prompts):
        before, drafted, after = (
            answer(
                runtime, prompt, sampling, seed, length, draft=draft
            ).reply.stats.tokens_per_second
            for draft in (False, True, False)
        )
        found.append(2 * drafted / (before + after))
        noise.append(after / before)
    return found, noise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_pair(parser)
    parser.add_argument("-t", "--temperature", type=float, default=0.0)
    parser.add_argument("-n", "--length", type=int, action="append")
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--long", action="store_true", help="forbid the end of replies")
    args = parser.parse_args()
    print("tokens   mean  least   10 %   mean of plain by plain, spread")
    with Runtime.open(pair(args)) as runtime:
        sampling = without(runtime.ends if args.long else (), args.temperature)
        for length in args.length or _LENGTHS:
            prompts = by_turns(WORKLOADS)[: args.prompts]
            found, noise = ratios(runtime, prompts, length, sampling)
            tenth = statistics.quantiles(found, n=10, method="inclusive")[0]
            print(
                f"{length:6} {statistics.mean(found):6.2f} {min(found):6.2f} {tenth:6.2f} "
                f"{statistics.mean(noise):10.2f} {statistics.pstdev(noise):10.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
