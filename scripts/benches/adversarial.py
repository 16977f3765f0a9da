"""Cases in which drafting could be slower than plain decoding, measured side by side.

Each case answers with and without drafting in turn, 128 tokens each, with ends of reply forbidden.
*Cold* is the first drafted reply with a pair that was never measured; *warm* is the median of
later ones. The promise is at least 0.97 cold and 0.99 warm.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import multiprocessing
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np

from benches.shared.replies import without
from localspec.bench.speedup import answer
from localspec.core.events import Message
from localspec.core.logits import Sampling
from localspec.core.options import Options
from localspec.runtime import Runtime

STORY = "Tell me a story about a lighthouse keeper and a storm."
LIST = "Give me five tips for a good night's sleep, then repeat them word for word."
CHANGE = (
    "Repeat this text word for word, then go on freely: The market opens at eight in the morning. "
    "Farmers sell fruit, bread and cheese. At noon the stalls close and the square is swept."
)


@dataclass(frozen=True)
class Case:
    """A situation in which speculation could lose time."""

    name: str
    prompt: str = STORY
    temperature: float = 0.0
    tokens: int = 128
    draft: Callable[[Path, Path], Path] | None = None
    """Makes the draft from (target, usual draft)."""
    full: bool = False
    """The context ends with the reply."""
    contended: bool = False
    drafter: tuple[str, ...] | None = None


def shuffled(draft: Path) -> Path:
    """Write a draft of random weights: the blocks of each matrix are shuffled."""
    path = draft.with_name(draft.stem + "-shuffled.gguf")
    if not path.exists():
        partial = path.with_suffix(".part")
        shutil.copyfile(draft, partial)
        rng = np.random.default_rng(0)
        for tensor in gguf.GGUFReader(partial, "r+").tensors:
            if len(tensor.shape) == 2:
                rng.shuffle(tensor.data.reshape(-1, tensor.data.shape[-1]))
        partial.rename(path)
    return path


CASES = (
    Case(
        "draft of random weights",
        draft=lambda _target, draft: shuffled(draft),
        drafter=("model",),
        temperature=1.0,
    ),
    Case(
        "draft as slow as the target",
        draft=lambda target, _draft: target,
        drafter=("model",),
        temperature=1.0,
    ),
    Case("text changes its kind", CHANGE, temperature=1.0),
    Case("temperature 1.5", temperature=1.5),
    Case("temperature 1.5, draft model alone", temperature=1.5, drafter=("model",)),
    Case("reply of one token", tokens=1),
    Case("nearly full context", full=True),
    Case("n-grams alone, prose", drafter=("ngram",), temperature=1.0),
    Case("another program on a core", LIST, contended=True),
)


def spin() -> None:
    """Keep a core busy."""
    while True:
        math.sqrt(2.0)


@contextlib.contextmanager
def neighbour(wanted: bool) -> Iterator[None]:
    """Run another program that computes, while the context is open."""
    if not wanted:
        yield
        return
    process = multiprocessing.get_context("spawn").Process(target=spin, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def seconds(runtime: Runtime, case: Case, sampling: Sampling, seed: int, draft: bool) -> float:
    """Seconds of decoding per token; for a reply of one token, the prompt is included."""
    found = answer(runtime, case.prompt, sampling, seed, case.tokens, draft=draft)
    stats = found.reply.stats
    assert stats.emitted == case.tokens
    return stats.decode_seconds / stats.emitted


def measure(case: Case, target: Path, draft: Path, replies: int) -> tuple[float, list[float]]:
    """Speed against plain decoding: of the first drafted reply, and of later ones."""
    drafted_by = case.draft(target, draft) if case.draft else draft
    options = Options(model=str(target), draft=str(drafted_by), context=640, drafter=case.drafter)
    with tempfile.TemporaryDirectory() as home:
        os.environ["LOCALSPEC_HOME"] = home  # so there are no measurements of the pair
        with Runtime.open(options) as runtime:
            prompt = len(runtime.encode([Message("user", case.prompt)]))
            ends = runtime.ends  # measuring needs equal lengths
        if case.full:
            options = replace(options, context=prompt + case.tokens)
        sampling = without(ends, case.temperature)
        for kept in (Path(home) / "cache").glob("costs/*"):
            kept.unlink()
        with Runtime.open(options) as runtime, neighbour(case.contended):
            seconds(runtime, case, sampling, 0, draft=False)  # a warm-up
            ratios = []
            for seed in range(1 + replies):
                before = seconds(runtime, case, sampling, seed, draft=False)
                drafted = seconds(runtime, case, sampling, seed, draft=True)
                after = seconds(runtime, case, sampling, seed, draft=False)
                ratios.append((before + after) / 2 / drafted)
            return ratios[0], ratios[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--replies", type=int, default=3, help="drafted replies after the first")
    parser.add_argument("--case", type=int, action="append", help="number of a case; all otherwise")
    args = parser.parse_args()
    print(f"{'CASE':30} {'COLD':>6} {'WARM':>6}  (MIN-MAX)")
    for i, case in enumerate(CASES):
        if args.case and i not in args.case:
            continue
        cold, warm = measure(case, args.target, args.draft, args.replies)
        middle = statistics.median(warm)
        print(
            f"{case.name:30} {cold:6.2f} {middle:6.2f}  ({min(warm):.2f}-{max(warm):.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
