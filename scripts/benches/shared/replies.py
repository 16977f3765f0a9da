"""What benches of whole replies have in common: prompts, pairs, and settings without ends."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from localspec import Options, Sampling
from localspec.bench.workloads import WORKLOADS, Workload


def workloads(file: Path | None) -> Sequence[Workload]:
    """The usual ones, or those of a file: a JSON object of lists (`scripts/train_long_pair`)."""
    if file is None:
        return WORKLOADS
    given = json.loads(file.read_text(encoding="utf-8"))
    return [Workload(name, tuple(prompts)) for name, prompts in given.items()]


def by_turns(kinds: Sequence[Workload]) -> list[str]:
    """The prompts, one of each kind of work after the other."""
    return [
        prompt for some in zip(*(kind.prompts for kind in kinds), strict=True) for prompt in some
    ]


def add_pair(parser: argparse.ArgumentParser) -> None:
    """Arguments that `pair` reads."""
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--draft", help="draft model; by default the one that belongs to it")
    parser.add_argument("--drafter", help="our drafters, separated by commas")
    parser.add_argument("--threads", type=int, help="by default as many as are quickest here")


def pair(args: argparse.Namespace) -> Options:
    """The pair that was asked for."""
    names = {"drafter": tuple(args.drafter.split(","))} if args.drafter else {}
    return Options(model=args.model, draft=args.draft, threads=args.threads, **names)


def without(banned: Iterable[int], temperature: float) -> Sampling:
    """Sampling that draws none of these tokens."""
    bias = tuple((token, -math.inf) for token in sorted(banned))
    return Sampling(temperature=temperature, logit_bias=bias)
