"""The cost of log-probabilities for each token, by size of the vocabulary. Needs no model.

    scripts/bench logprobs [--vocabulary 152064]

Microseconds of one thread, the least of several runs; rows are random, as of a device's output.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from localspec.decode.logprobs import TokenScorer


def least(scorer: TokenScorer, rows: np.ndarray, runs: int) -> float:
    """Microseconds for one row."""
    found = []
    for _ in range(runs):
        start = time.thread_time()
        for row in rows:
            scorer.scored(row, 7)
        found.append((time.thread_time() - start) / len(rows))
    return 1e6 * min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", type=int, action="append")
    parser.add_argument("--runs", type=int, default=9)
    args = parser.parse_args()
    print("vocabulary   chosen token   top 5   top 20")
    for v in args.vocabulary or (2048, 32_000, 152_064):
        rows = np.random.default_rng(1).normal(0, 3, (32, v)).astype(np.float32)
        costs = [least(TokenScorer(n, "raw", str), rows, args.runs) for n in (0, 5, 20)]
        print(f"{v:10} {costs[0]:14.0f} {costs[1]:7.0f} {costs[2]:8.0f}", flush=True)


if __name__ == "__main__":
    main()
