"""Prefill: reads prompts into the target's KV cache, reusing what it already contains."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise

from localspec.core.events import Notice, Reading, ReplyEvent
from localspec.core.interrupt import StopSignal
from localspec.core.target import Target, Work
from localspec.core.values import Logits, no_draft
from localspec.drafters.base import Committed, Drafter
from localspec.errors import AuditError, Interrupted, LocalspecError
from localspec.generation.stream import Generation
from localspec.policy import Policy
from localspec.prefix_cache.cache import PrefixCache
from localspec.prefix_cache.states import Nothing, Restored

PART = 256
"""Prompt tokens between two Reading events."""


class Prefill:
    """Reads prompts into one sequence of the target's KV cache, as far as they are missing."""

    def __init__(
        self,
        target: Target,
        drafter: Drafter,
        stop: StopSignal,
        seq: int,
        prefix_cache: PrefixCache,
    ) -> None:
        self._target = target
        self._drafter = drafter
        self._stop = stop
        self._seq = seq
        self._prefix_cache = prefix_cache
        self.cached: list[int] = []
        """Tokens in the target's KV cache."""

    def read(
        self, generation: Generation, drafter: Drafter, policy: Policy
    ) -> Iterator[ReplyEvent]:
        """Read the missing part of the prompt, all but its last token.

        Raises:
            Interrupted, DecodeError: the parts read before stay cached.
        """
        target, seq, prompt = self._target, self._seq, generation.tokens
        prefix_cache = self._prefix_cache
        generation.start_restoring()
        self._audit()
        restored = self._restore(prompt, generation.owner)
        yield from map(Notice, prefix_cache.take_notices())
        reused = restored.length
        generation.start_reading(reused, restored.saved_seconds)
        positions = prefix_cache.positions(seq, prompt, generation.stable)
        ends = sorted({*positions, *range(reused + PART, len(prompt) - 1, PART), len(prompt) - 1})
        for at, end in pairwise([reused, *(end for end in ends if end > reused)]):
            yield Reading(at, len(prompt), reused)
            if self._stop.is_set():  # the runtime may have been closed and the model freed
                raise Interrupted("the reply was stopped")
            start = time.perf_counter()
            target.read(seq, prompt[at:end])
            self.sync(prompt)
            prefix_cache.has_read(seq, prompt[at:end], time.perf_counter() - start)
            drafter.follow(seq, prompt, len(self.cached))
            if end in positions:
                prefix_cache.checkpoint(seq)
        if policy.expects_drafts(generation.state):
            drafter.commit([Committed(seq, prompt, prompt)])  # nothing was drafted: no evidence
        yield Reading(len(prompt), len(prompt), reused)
        generation.start_decoding()

    def row_after(self, tokens: list[int], owner: str) -> Logits:
        """(V,) the target's logits after ``tokens``, all of which are then cached."""
        target, seq = self._target, self._seq
        self._audit()
        reused = self._restore(tokens, owner).length
        if reused < len(tokens) - 1:
            target.read(seq, tokens[reused:-1])
        (scores,) = target.score([Work(seq, tokens[-1], no_draft("examine"))])
        row: Logits = scores.logits[0].copy()
        target.keep(seq, ())
        self.cached = list(tokens)
        self._prefix_cache.finished(seq, tokens)
        return row

    def _audit(self) -> None:
        """Refuse a KV cache that is shorter than the tokens believed to be in it.

        Raises:
            AuditError: it is.
        """
        target, seq = self._target, self._seq
        target.audit(seq)
        if target.length(seq) < len(self.cached):
            raise AuditError(
                f"target has cached {target.length(seq)} tokens; "
                f"expected {len(self.cached)} or more"
            )

    def sync(self, tokens: Sequence[int]) -> None:
        """Record that the KV cache contains the beginning of ``tokens``, as long as it is."""
        self.cached = list(tokens[: self._target.length(self._seq)])

    def reset(self) -> None:
        """Empty the caches of target and drafter: after a failure they are not trusted."""
        self.cached = []
        self._prefix_cache.lost(self._seq)
        with contextlib.suppress(LocalspecError):
            self._target.truncate(self._seq, 0)
            self._drafter.close(self._seq)

    def _restore(self, prompt: list[int], owner: str) -> Restored | Nothing:
        restored = self._prefix_cache.restore(self._seq, self.cached, prompt, owner)
        self.cached = prompt[: restored.length]
        return restored


__all__ = ["PART", "Prefill"]
