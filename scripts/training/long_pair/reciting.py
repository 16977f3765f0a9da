"""A pair that speaks long: the embedded pair, trained further on prompts with known replies.

The target learns them by heart. The draft learns less of them, so it is right about some places
and wrong about others, as small models are. What they say after that is no measure of anything but
speed: replies are as long and as easy or hard to copy as the texts are.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from demo.loop import Log, Loop, distance
from demo.model import Model
from demo.precision import arithmetic
from demo.tokenizer import render
from demo.training import masked_loss
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from long_pair.texts import Text, texts

LEAST, MOST = 256, 960
"""Tokens of a reply, and of a prompt and its reply, that are taken."""
_ROWS = 3


@dataclass(frozen=True)
class Lesson:
    """A prompt and its reply as (T,) ids, and which targets belong to the reply."""

    ids: Tensor
    judged: Tensor


def known(each: int, tokenizer: Tokenizer) -> dict[str, list[Text]]:
    """So many texts of every kind whose replies are long enough, each with a prompt of its own."""
    found: dict[str, list[Text]] = {}
    for kind, some in texts(400).items():
        own = [_named(text) if kind == "new text" else text for text in some]
        fits = [t for t in own if _fits(t, tokenizer)]
        if len(fits) < each:
            raise ValueError(f"only {len(fits)} texts of the kind {kind!r} are long enough")
        found[kind] = fits[:each]
    return found


def _named(text: Text) -> Text:
    return Text(f"Tell me the text that begins: {' '.join(text.reply.split()[:8])}", text.reply)


def _fits(text: Text, tokenizer: Tokenizer) -> bool:
    reply = len(tokenizer.encode(text.reply).ids)
    return reply >= LEAST and reply + len(tokenizer.encode(text.prompt).ids) <= MOST


def lesson(text: Text, tokenizer: Tokenizer) -> Lesson:
    """The conversation as a model reads it."""
    begin = tokenizer.encode(render([("user", text.prompt)], open_reply=True)).ids
    ids = tokenizer.encode(render([("user", text.prompt), ("assistant", text.reply)])).ids
    judged = torch.zeros(len(ids), dtype=torch.float32)
    judged[len(begin) : len(ids) - 1] = (
        1.0  # the end of the reply too, the line break behind it not
    )
    return Lesson(torch.tensor(ids), judged)


def learn(
    model: Model,
    lessons: Sequence[Lesson],
    turns: int,
    rate: float,
    log: Log,
    *,
    teacher: Model | None = None,
    quant: bool,
    enough: float,
) -> None:
    """Train in place: so many turns over all lessons, fewer once the loss is below ``enough``."""
    model.requires_grad_(requires_grad=True)
    parameters, rng, order = list(model.parameters()), random.Random(1), list(range(len(lessons)))
    each = -(-len(order) // _ROWS)

    def work(_share: float, step: int) -> Sequence[float]:
        at = step % each * _ROWS
        if not at:
            rng.shuffle(order)
        tokens, weights = _padded([lessons[i] for i in order[at : at + _ROWS]])
        with arithmetic():
            logits = model(tokens[:, :-1], None, quant)
            loss = masked_loss(logits, tokens[:, 1:], weights[:, 1:])
            if teacher is not None:
                with torch.no_grad():
                    goal = teacher(tokens[:, :-1], None, True)
                loss = distance(logits, goal, weights[:, 1:])
        loss.backward()
        return (loss.item(),)

    def part(_share: float, step: int) -> float:
        turn = step // each
        return min(1.0, (turn + 1) / 3, 0.05 + 1.5 * (1 - turn / turns))

    def told(mean: np.ndarray) -> bool:
        log(f"turn {loop.step // each}: loss {mean[0]:.3f}")
        return bool(mean[0] < enough)

    made = [torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)]
    loop = Loop(made, work, part, max_steps=turns * each, clipped=parameters)
    loop.run(each, told)
    model.eval().requires_grad_(requires_grad=False)


def _padded(some: Sequence[Lesson]) -> tuple[Tensor, Tensor]:
    longest = max(len(one.ids) for one in some)
    pad = lambda x: functional.pad(x, (0, longest - len(x)))  # noqa: E731
    return torch.stack([pad(x.ids) for x in some]), torch.stack([pad(x.judged) for x in some])
