"""Training: the embedded target goes on with conversations with calls, and becomes a GGUF file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from demo import tokenizer as tok
from demo.batches import packed
from demo.export import quantize, write_f16
from demo.loop import Log
from demo.model import Model
from demo.phrase import Talk
from demo.training import Plan, Trainer
from demo.training import load as trained
from heads.frozen import load
from tokenizers import Tokenizer

from .form import MARKERS, TEMPLATE, tokenizer
from .talks import talks

ROWS, LENGTH = 4, 640
CONTEXT = 1024
_CALL = re.compile(
    r'<tool_call>\n\{"name": "(.*?)", "arguments": \{(.*?)\}\}\n</tool_call>', re.DOTALL
)
_VALUE = re.compile(r'": (".*?"|[^",]+)(?:, "|$)', re.DOTALL)
# What a token counts as something to predict: a grammar forces the rest of a call, and
# what users ask and tools find is chance.
_CHOICE, _NAME, _VALUES, _FORCED, _ANSWER = 6.0, 2.0, 3.0, 0.02, 3.0


class Encoder:
    """Ids of conversations, and how much each id counts."""

    def __init__(self, coder: Tokenizer) -> None:
        self._coder = coder

    def __call__(self, talks: list[Talk]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for spoken, coded in zip(
            talks, self._coder.encode_batch([tok.render(one) for one in talks]), strict=True
        ):
            counts = _counts(spoken)
            weights = [counts[begin] for begin, _ in coded.offsets]
            yield np.array(coded.ids, dtype=np.int64), np.array(weights, dtype=np.float32)


def _counts(spoken: Talk) -> np.ndarray:
    """How much each character of the rendered conversation counts."""
    parts = []
    for role, content in spoken:
        turn = tok.render([(role, content)])
        counts = np.zeros(len(turn), dtype=np.float32)
        at = turn.index("\n") + 1
        if role == "assistant":
            counts[at : at + len(content) + 1] = _ANSWER  # and its end
            for call in _CALL.finditer(turn):
                counts[call.start() : call.end()] = _FORCED
                counts[call.start(1) : call.end(1) + 1] = _NAME
                for value in _VALUE.finditer(turn, call.start(2), call.end(2)):
                    counts[value.start(1) : value.end(1)] = _VALUES
                    counts[value.start(1)] = counts[value.start(1) + 1] = _CHOICE
            counts[at] = _CHOICE  # whether to call, or to answer
        parts.append(counts)
    return np.concatenate(parts)


def begun(demo: Path, vocabulary: Path) -> Model:
    """The embedded target with rows for `MARKERS`: each begins as the mean of the tokens that spell it."""
    model = load(demo)
    spelling = tok.load(vocabulary)
    rows = [model.embed[spelling.encode(marker).ids].mean(0) for marker in MARKERS]
    grown = Model(replace(model.shape, vocab=model.shape.vocab + len(rows)))
    state = model.state_dict()
    state["embed"] = torch.cat([state["embed"], torch.stack(rows)])
    grown.load_state_dict(state)
    return grown


def train(demo: Path, vocabulary: Path, work: Path, steps: int, seed: int, log: Log) -> None:
    """Train, or go on where it was stopped."""
    model = begun(demo, vocabulary)
    plan = Plan(
        minutes=0,
        max_steps=steps,
        matrix_rate=2e-3,
        other_rate=1e-3,
        warm_up=40,
        decay_from=0.75,
        quant_from=0.6,
        phases=(0.0,),
        report=25,
    )
    trainer = Trainer(model.shape, plan, work, seed)
    trainer.model.load_state_dict(model.state_dict())
    coder = tokenizer(vocabulary)
    trainer.run(lambda seed, _: packed(Encoder(coder), talks(seed), ROWS, LENGTH), log)


def export(work: Path, vocabulary: Path, out: Path, log: Log) -> None:
    """The trained model with 4 bits a weight."""
    plain = work / "caller-f16.gguf"
    write_f16(trained(work), vocabulary, plain, "caller", TEMPLATE, more=MARKERS, context=CONTEXT)
    out.parent.mkdir(parents=True, exist_ok=True)
    quantize(plain, out, "Q4_0", log)
    plain.unlink()
