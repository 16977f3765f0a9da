"""Whole replies by llama.cpp's plain decoding: what our kernels gain, what drafting does, and both.

Two processes, one for each kind of kernels, take turns (`taking_turns`). Each prompt of the eight
kinds of work is answered four times, plain and drafted by either, and only once by each: drafting
begins without knowing anything, and nothing of a prompt is cached. A plain reply of llama.cpp's
kernels ends a prompt too; how much it differs from the first is printed as noise. Rows are
medians over the prompts of a kind, the last line is their geometric mean.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benches.shared.replies import workloads
from benches.shared.taking_turns import Side, answer_all, sides
from localspec import Options, Runtime, Sampling
from localspec.bench.speedup import answer
from localspec.loading.own_kernels import LLAMA, OWN


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply."""

    speed: float
    """Tokens a second after the first one's pass."""
    first: float
    """Seconds until the prompt was read."""
    text: str
    emitted: int


@dataclass(frozen=True, slots=True)
class Turn:
    """A prompt, answered by all; speeds as multiples of llama.cpp's plain decoding."""

    own_plain: float
    drafted: float
    llama_drafted: float
    prompt: float
    """Seconds to read the prompt with llama.cpp's kernels, by those with ours."""
    spread: float
    emitted: int
    same: bool
    """Whether our drafted text is our plain text."""


def respond(runtime: Runtime, question: dict[str, Any]) -> dict[str, Any]:
    """The reply that a question asks for."""
    runtime.forget()  # the prompt's cache, not what drafting has learnt
    found = answer(
        runtime,
        question["prompt"],
        Sampling(temperature=question["temperature"]),
        question["seed"],
        question["length"],
        draft=question["draft"],
    ).reply
    stats = found.stats
    return asdict(Answer(stats.tokens_per_second, stats.prompt_seconds, found.text, stats.emitted))


def turn(pair: dict[str, Side], prompt: str, temperature: float, seed: int, length: int) -> Turn:
    """Ask both."""

    def ask(kernels: str, *, draft: bool) -> Answer:
        question = {"prompt": prompt, "temperature": temperature, "seed": seed}
        return Answer(**pair[kernels].ask({**question, "length": length, "draft": draft}))

    first = ask(LLAMA, draft=False)
    own = ask(OWN, draft=False)
    drafted = ask(OWN, draft=True)
    llama_drafted = ask(LLAMA, draft=True)
    last = ask(LLAMA, draft=False)
    plain = statistics.harmonic_mean([first.speed, last.speed])
    return Turn(
        own_plain=own.speed / plain,
        drafted=drafted.speed / plain,
        llama_drafted=llama_drafted.speed / plain,
        prompt=min(first.first, last.first) / own.first,
        spread=max(first.speed, last.speed) / min(first.speed, last.speed),
        emitted=drafted.emitted,
        same=drafted.text == own.text,
    )


def row(name: str, turns: Sequence[Turn]) -> tuple[float, ...]:
    """Print the medians of a kind of work, and return them."""
    found = tuple(
        statistics.median(getattr(one, field) for one in turns)
        for field in ("own_plain", "llama_drafted", "drafted", "prompt")
    )
    cells = " ".join(f"{value:12.2f}" for value in found)
    same = sum(one.same for one in turns)
    noise = max(one.spread for one in turns)
    tokens = sum(one.emitted for one in turns)
    print(f"{name:16} {tokens:6} {cells} {noise:8.2f} {same:4}/{len(turns)}", flush=True)
    return found


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--draft", help="draft model; by default the one that belongs to it")
    parser.add_argument("-t", "--temperature", type=float, action="append")
    parser.add_argument("-n", "--max-tokens", type=int, default=128)
    parser.add_argument("--prompts", type=Path, help="a JSON object of lists by kind of work")
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.answer:
        options = Options(model=a.model, draft=a.draft, kernels=a.answer, offline=True)
        with Runtime.open(options) as runtime:
            answer_all(functools.partial(respond, runtime))
        return 0
    kinds = workloads(a.prompts)
    common = [a.model, *(["--draft", a.draft] if a.draft else [])]
    print("times llama.cpp's plain decoding; same: drafted text is plain text")
    names = ("own plain", "llama draft", "own draft", "prompt")
    header = " ".join(f"{name:>12}" for name in names)
    for temperature in a.temperature or (0.0, 1.0):
        # New processes, so that nothing was learnt at another temperature.
        with sides({k: [*common, "--answer", k] for k in (OWN, LLAMA)}) as pair:
            print(f"\nT = {temperature:g}\n{'':16} tokens {header}    noise same")
            rows = []
            for kind in kinds:
                turns = [
                    turn(pair, prompt, temperature, seed, a.max_tokens)
                    for seed, prompt in enumerate(kind.prompts)
                ]
                rows.append(row(kind.name, turns))
        means = [statistics.geometric_mean(column) for column in zip(*rows, strict=True)]
        print(f"{'mean':16} {'':6} {' '.join(f'{value:12.2f}' for value in means)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
