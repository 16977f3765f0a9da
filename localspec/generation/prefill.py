"""What the target's KV cache holds of the conversation, and how the rest gets there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

from localspec.core.events import Notice, Reading, ReplyEvent
from localspec.core.interrupt import StopSignal
from localspec.core.target import Target, Work
from localspec.core.values import Logits, no_draft
from localspec.drafters.base import Committed, Drafter, Follows
from localspec.drafters.model.interface import common_prefix
from localspec.errors import AuditError, DecodeError, Interrupted, LocalspecError
from localspec.generation.prefix_cache import PrefixCache
from localspec.generation.stream import Generation
from localspec.policy import Policy

_READ_AT_ONCE = 256
"""Prompt tokens between two Reading events."""


class Prefill:
    """Reads prompts into one sequence of the target's KV cache, as far as they are not there."""

    def __init__(self, target: Target, drafter: Drafter, stop: StopSignal, seq: int) -> None:
        self._target = target
        self._drafter = drafter
        self._stop = stop
        self._seq = seq
        self.held: list[int] = []
        """Tokens in the target's KV cache."""
        self.resuming: PrefixCache | None = None
        """Caches of earlier sessions, if they are to be used."""

    def read(
        self, generation: Generation, drafter: Drafter, policy: Policy
    ) -> Iterator[ReplyEvent]:
        """Read what the KV cache does not hold yet of the prompt, all but its last token.

        Raises:
            Interrupted, DecodeError: what was read before stays.
        """
        target, seq, prompt = self._target, self._seq, generation.tokens
        self._audit()
        if self.resuming is not None:
            self.held = self.resuming.restore(seq, self.held, prompt)
        cached = self._cut(prompt)
        if self.resuming is not None:
            yield from map(Notice, self.resuming.take_notices())
        generation.start_reading(cached)
        for at in range(cached, len(prompt) - 1, _READ_AT_ONCE):
            yield Reading(at, len(prompt), cached)
            if self._stop.is_set():  # there may be no model any more
                raise Interrupted("the reply was stopped")
            start = time.perf_counter()
            target.read(seq, prompt[at : min(at + _READ_AT_ONCE, len(prompt) - 1)])
            self.keep(prompt)
            if isinstance(drafter, Follows):
                drafter.follow(seq, prompt, len(self.held))
            if self.resuming is not None:
                self.resuming.has_read(len(self.held) - at, time.perf_counter() - start)
        if policy.expects_drafts(generation.standing):
            drafter.commit([Committed(seq, prompt, prompt)])  # no draft yet: no evidence
        yield Reading(len(prompt), len(prompt), cached)
        generation.start_decoding()

    def row_after(self, known: list[int]) -> Logits:
        """(V,) the target's logits after ``known``, which its cache then holds."""
        target, seq = self._target, self._seq
        self._audit()
        cached = self._cut(known)
        if cached < len(known) - 1:
            target.read(seq, known[cached:-1])
        (scores,) = target.score([Work(seq, known[-1], no_draft("look"))])
        row: Logits = scores.logits[0].copy()
        target.keep(seq, ())
        self.held = list(known)
        return row

    def _audit(self) -> None:
        """Nothing is made of a cache that does not hold what we believe.

        Raises:
            AuditError: it does not.
        """
        target, seq = self._target, self._seq
        target.audit(seq)
        if target.length(seq) < len(self.held):
            raise AuditError(
                f"target holds {target.length(seq)} tokens; expected {len(self.held)} or more"
            )

    def keep(self, tokens: Sequence[int]) -> None:
        """Take note that the cache holds as many of ``tokens`` as it is long."""
        self.held = list(tokens[: self._target.length(self._seq)])

    def forget(self) -> None:
        """After a failure nothing in the caches is trusted."""
        self.held = []
        with contextlib.suppress(LocalspecError):
            self._target.truncate(self._seq, 0)
            self._drafter.close(self._seq)

    def _cut(self, prompt: list[int]) -> int:
        """Leave in the KV cache what ``prompt`` begins with, less its last token; how many."""
        target, seq = self._target, self._seq
        cached = min(common_prefix(self.held, prompt), len(prompt) - 1)
        try:
            target.truncate(seq, cached)
        except DecodeError:  # this kind of cache can only forget all
            cached = 0
            target.truncate(seq, cached)
        self.held = prompt[:cached]
        return cached


__all__ = ["Prefill"]
