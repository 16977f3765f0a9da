"""Prefill: reads prompts into the target's KV cache, reusing what it already contains."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

from localspec.core.events import Notice, Reading, ReplyEvent
from localspec.core.interrupt import StopSignal
from localspec.core.target import Target, Work
from localspec.core.values import Logits, no_draft
from localspec.drafters.base import Committed, Drafter
from localspec.drafters.model.interface import common_prefix
from localspec.errors import AuditError, DecodeError, Interrupted, LocalspecError
from localspec.generation.prefix_cache import PrefixCache
from localspec.generation.stream import Generation
from localspec.policy import Policy

PART = 256
"""Prompt tokens between two Reading events."""


class Prefill:
    """Reads prompts into one sequence of the target's KV cache, as far as they are missing."""

    def __init__(self, target: Target, drafter: Drafter, stop: StopSignal, seq: int) -> None:
        self._target = target
        self._drafter = drafter
        self._stop = stop
        self._seq = seq
        self.cached: list[int] = []
        """Tokens in the target's KV cache."""
        self.prefix_cache: PrefixCache | None = None
        """KV caches saved by earlier sessions; None where they are not used."""

    def read(
        self, generation: Generation, drafter: Drafter, policy: Policy
    ) -> Iterator[ReplyEvent]:
        """Read the missing part of the prompt, all but its last token.

        Raises:
            Interrupted, DecodeError: the parts read before stay cached.
        """
        target, seq, prompt = self._target, self._seq, generation.tokens
        self._audit()
        if self.prefix_cache is not None:
            self.cached = self.prefix_cache.restore(seq, self.cached, prompt)
        reused = self._cut(prompt)
        if self.prefix_cache is not None:
            yield from map(Notice, self.prefix_cache.take_notices())
        generation.start_reading(reused)
        for at in range(reused, len(prompt) - 1, PART):
            yield Reading(at, len(prompt), reused)
            if self._stop.is_set():  # the runtime may have been closed and the model freed
                raise Interrupted("the reply was stopped")
            start = time.perf_counter()
            target.read(seq, prompt[at : min(at + PART, len(prompt) - 1)])
            self.sync(prompt)
            drafter.follow(seq, prompt, len(self.cached))
            if self.prefix_cache is not None:
                self.prefix_cache.has_read(len(self.cached) - at, time.perf_counter() - start)
        if policy.expects_drafts(generation.state):
            drafter.commit([Committed(seq, prompt, prompt)])  # nothing was drafted: no evidence
        yield Reading(len(prompt), len(prompt), reused)
        generation.start_decoding()

    def row_after(self, tokens: list[int]) -> Logits:
        """(V,) the target's logits after ``tokens``, all of which are then cached."""
        target, seq = self._target, self._seq
        self._audit()
        reused = self._cut(tokens)
        if reused < len(tokens) - 1:
            target.read(seq, tokens[reused:-1])
        (scores,) = target.score([Work(seq, tokens[-1], no_draft("examine"))])
        row: Logits = scores.logits[0].copy()
        target.keep(seq, ())
        self.cached = list(tokens)
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
        with contextlib.suppress(LocalspecError):
            self._target.truncate(self._seq, 0)
            self._drafter.close(self._seq)

    def _cut(self, prompt: list[int]) -> int:
        """Truncate the KV cache to the beginning that ``prompt`` shares with it, less the prompt's
        last token; returns its length.
        """
        target, seq = self._target, self._seq
        reused = min(common_prefix(self.cached, prompt), len(prompt) - 1)
        try:
            target.truncate(seq, reused)
        except DecodeError:  # this kind of cache can only be emptied
            reused = 0
            target.truncate(seq, reused)
        self.cached = prompt[:reused]
        return reused


__all__ = ["PART", "Prefill"]
