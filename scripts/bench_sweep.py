"""Compare the costs of the sweep at load with those of real rounds, for targets with experts.

t(4) / t(1) is measured in three ways, alternating: by the sweep, from the rounds of replies (drafts
of three tokens, and plain), and over the same token four times, which uses the same experts. The
targets have random weights, in several architectures. The sweep should differ by less than 15 %.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from moe_files import ARCHITECTURES, Size, write_moe

from localspec import Finished, Message, Options, Runtime, Sampling
from localspec.bench.lab import Lab
from localspec.core.events import Round
from localspec.demo import FOLDER
from localspec.llama.context import Context
from localspec.llama.timing import sweep

_K = 3
_SAMPLING = Sampling(temperature=1.0, top_k=0, top_p=1.0)
_PROMPT = "Tell me a story about a lighthouse keeper and a storm."
_NEAR = 0.15


def by_rounds(runtime: Runtime, tokens: int, seed: int) -> float:
    """t(4) / t(1) from the rounds of a drafted and a plain reply."""
    wide = _pass_seconds(runtime, tokens, seed, draft=True)
    return statistics.median(wide) / statistics.median(
        _pass_seconds(runtime, tokens, seed, draft=False)
    )


def _pass_seconds(runtime: Runtime, tokens: int, seed: int, *, draft: bool) -> list[float]:
    seconds, emitted = list[float](), 0
    while emitted < tokens:  # random weights may end a reply at any token
        for event in runtime.reply(
            [Message("user", _PROMPT)],
            sampling=_SAMPLING,
            seed=seed,
            max_tokens=tokens - emitted,
            draft=draft,
        ):
            if isinstance(event, Round) and event.drafted == (_K if draft else 0):
                seconds.append(event.verify_seconds)
            elif isinstance(event, Finished):
                emitted += max(1, len(event.reply.tokens))
        seed += 1
    return seconds[1:]  # the first pass of a width builds its graph


def target_context(runtime: Runtime) -> Context:
    """The context of the runtime's target."""
    pairing = Lab(runtime).borrow()
    return next(
        part
        for part in pairing.parts.loaded
        if isinstance(part, Context) and part.model is pairing.target_model
    )


def by_sweep(target: Context) -> float:
    """t(4) / t(1) of the sweep, from which the controller starts."""
    curve = sweep(target)
    return curve[1 + _K] / curve[1]


def by_one_token(target: Context) -> float:
    """t(4) / t(1) over the same token in all rows."""
    return _alike(target, 1 + _K) / _alike(target, 1)


def _alike(target: Context, width: int) -> float:
    seconds = []
    for _ in range(6):
        began = time.perf_counter()
        target.forward([(0, [1] * width, width)])
        seconds.append(time.perf_counter() - began)
        target.truncate(0, 0)
    return min(seconds[1:])


def measured(path: Path, turns: int, tokens: int, threads: int | None) -> Sequence[float]:
    """Medians of the three ratios: rounds, sweep, one token."""
    options = Options(
        model=str(path),
        draft=str(FOLDER / "draft.gguf"),
        drafter=("model",),
        draft_max=_K,
        context=1024,
        threads=threads,
    )
    with Runtime.open(options) as runtime:
        found = []
        for turn in range(turns):
            rounds = by_rounds(runtime, tokens, seed=turn)
            target = target_context(runtime)
            found.append((rounds, by_sweep(target), by_one_token(target)))
    return [statistics.median(ratios) for ratios in zip(*found, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--architecture", choices=ARCHITECTURES, action="append")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--used", type=int, default=4, help="experts for each token")
    parser.add_argument("--hidden", type=int, default=256, help="neurons of an expert")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=96, help="of each reply")
    parser.add_argument("--threads", type=int)
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="on a busy machine: one thread, and its own time in place of the clock's",
    )
    asked = parser.parse_args()
    if asked.cpu_time:
        asked.threads, time.perf_counter = 1, time.thread_time
    size = Size(asked.layers, asked.width, asked.experts, asked.used, asked.hidden)
    print(f"t({1 + _K}) / t(1)   rounds   sweep  apart   same token  apart")
    with tempfile.TemporaryDirectory() as folder:
        for architecture in asked.architecture or ARCHITECTURES:
            path = write_moe(Path(folder) / f"{architecture}.gguf", architecture, size)
            rounds, swept, alike = measured(path, asked.turns, asked.tokens, asked.threads)
            path.unlink()
            apart = swept / rounds - 1
            print(
                f"{architecture:<12} {rounds:>7.2f} {swept:>7.2f} {apart:>+6.0%} "
                f"{alike:>12.2f} {alike / rounds - 1:>+6.0%}"
                f"{'' if abs(apart) <= _NEAR else '   more than 15 % apart'}",
                flush=True,
            )


if __name__ == "__main__":
    main()
