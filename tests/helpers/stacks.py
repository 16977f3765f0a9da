"""A target and a drafter that follows it, without a runtime: read a prompt, play some rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.noise import Noise
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.drafters.heads.eagle_tree import HeadTreeDrafter
from localspec.drafters.heads.head_drafter import HeadDrafter
from localspec.llama.context import Context
from localspec.llama.target import LlamaTarget
from localspec.testing import Fixed

_READ_AT_ONCE = 50


def prompt(n: int, seed: int = 0, below: int = 250) -> list[int]:
    """Ids of n words, none of those that end a text."""
    return np.random.default_rng(seed).integers(3, below, n).tolist()


@dataclass
class Following:
    """The parts that all tests of heads have; heads with a context of their own add it."""

    context: Context
    target: LlamaTarget
    drafter: HeadDrafter | HeadTreeDrafter
    n_vocab: int

    def read(self, tokens: list[int]) -> None:
        """A prompt, as the runtime reads it."""
        for at in range(self.target.length(0), len(tokens) - 1, _READ_AT_ONCE):
            self.target.read(0, tokens[at : min(at + _READ_AT_ONCE, len(tokens) - 1)])
            self.drafter.prompt_read(0, tokens, self.target.length(0))

    def play(self, tokens: list[int], n: int, k: int, sampling: Sampling, seed: int = 5) -> int:
        """Rounds of up to k drafted tokens after a prompt; returns the tokens accepted."""
        request = Request(
            0,
            tokens,
            LogitsProcessor(sampling, self.n_vocab),
            Noise(seed),
            500,
        )
        for _ in range(n):
            decode_round([request], self.target, self.drafter, Fixed(k))
            self.context.audit()
        return request.tally.accepted
