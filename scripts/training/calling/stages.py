"""The small model of the tests that calls tools: the embedded target, which learns conversations with
calls. One core needs about an hour; training that was stopped goes on where it last saved.

The committed file came to be while data and weights of the loss were changed; this is their last state.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from demo.stages import DATA, DEMO, ROOT, Log

STAGES = ("train", "export")
MORE = ()
_VOCABULARY = DATA / "tokenizer.json"


def arguments(p: ArgumentParser) -> None:
    p.add_argument("--out", type=Path, default=ROOT / "tests/data/calling/caller.gguf")
    p.add_argument("--work", type=Path, default=ROOT / "build/caller", help="checkpoints")
    p.add_argument("--steps", type=int, default=2250)


def train(args: Namespace, log: Log) -> None:
    from .learn import train as learn

    learn(DEMO / "target.gguf", _VOCABULARY, args.work, args.steps, args.seed, log)


def export(args: Namespace, log: Log) -> None:
    from .learn import export as write

    write(args.work, _VOCABULARY, args.out, log)
