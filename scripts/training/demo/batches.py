"""Endless training batches: conversations are generated, encoded, weighted and packed on the fly."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from .copying import Quotes
from .corpus import HeldOut, conversations
from .phrase import Talk
from .tokenizer import END, START, render

# The model learns to answer; it only glances at how people ask.
ASKED = 0.1


@dataclass
class Batch:
    tokens: Tensor
    targets: Tensor
    weights: Tensor
    talk: Tensor


@dataclass(frozen=True)
class Diet:
    """Windows and mixture of one phase of training."""

    rows: int
    length: int
    chain: float
    most: int
    drills: float


class Encoder:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.heads = {
            r: len(tokenizer.encode(f"{r}\n").ids) for r in ("system", "user", "assistant")
        }

    def __call__(self, talks: list[Talk]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Ids of each conversation, and how much each id counts as something to predict."""
        for talk, coded in zip(
            talks, self.tokenizer.encode_batch([render(t) for t in talks]), strict=True
        ):
            ids = np.array(coded.ids, dtype=np.int64)
            weights = np.full(len(ids), ASKED, dtype=np.float32)
            starts, ends = np.flatnonzero(ids == START), np.flatnonzero(ids == END)
            for (role, _), start, end in zip(talk, starts, ends, strict=True):
                if role == "assistant":
                    weights[start + 1 + self.heads[role] : end + 1] = 1.0
            # What follows the last reply is never asked for; the opening of a conversation is fixed.
            weights[ids == START] = 0.0
            yield ids, weights


def batches(
    tokenizer: Tokenizer,
    held: HeldOut,
    quotes: Quotes,
    seed: int,
    diet: Diet,
) -> Iterator[Batch]:
    source = conversations(seed, held, quotes, diet.chain, diet.most, diet.drills)
    talks = (talk for _, talk in source)
    return packed(Encoder(tokenizer), talks, diet.rows, diet.length)


Encode = Callable[[list[Talk]], Iterator[tuple[np.ndarray, np.ndarray]]]


def packed(encode: Encode, talks: Iterator[Talk], rows: int, length: int) -> Iterator[Batch]:
    """Batches of whole conversations, as many as fit beside each other; longer ones are left out."""
    waiting: list[tuple[np.ndarray, np.ndarray]] = []
    while True:
        # One place more than `length`, because the targets are the tokens shifted by one.
        tokens = np.zeros((rows, length + 1), dtype=np.int64)
        weights = np.zeros((rows, length + 1), dtype=np.float32)
        talk = np.zeros((rows, length + 1), dtype=np.int64)
        used = [0] * rows
        misses, number = 0, 0
        later: list[tuple[np.ndarray, np.ndarray]] = []
        while misses < 40:
            if not waiting:
                waiting = list(encode([next(talks) for _ in range(256)]))
            ids, value = waiting.pop()
            n = len(ids)
            if n > length + 1:
                continue
            row = next((r for r in range(rows) if used[r] + n <= length + 1), None)
            if row is None:
                misses += 1
                later.append((ids, value))
                continue
            number += 1
            at = slice(used[row], used[row] + n)
            tokens[row, at], talk[row, at] = ids, number
            weights[row, at] = value
            weights[row, used[row]] = 0.0
            used[row] += n
        waiting += later
        yield Batch(
            torch.from_numpy(tokens[:, :-1]),
            torch.from_numpy(tokens[:, 1:]),
            torch.from_numpy(weights[:, 1:]),
            torch.from_numpy(talk[:, :-1]),
        )
