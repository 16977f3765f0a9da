"""Prefill: reads prompts into the target's KV cache, reusing what it already contains."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from localspec.core.events import Notice, Reading, ReplyEvent
from localspec.core.target import Target, Work
from localspec.core.values import Logits, no_draft
from localspec.drafters.base import Committed, Drafter
from localspec.drafters.model.interface import common_prefix
from localspec.errors import AuditError, DecodeError, LocalspecError
from localspec.generation.prefix_cache import PrefixCache
from localspec.generation.stream import Generation
from localspec.policy import Policy

PART = 256
"""Most prompt tokens between two Reading events."""
LEAST_PART = 16
"""Fewest, unless fewer are left: a pass over less costs nearly as much."""
FIRST_PART = 32
"""Tokens of a part that others wait for, before the speed of reading is known."""
_WEIGHT = 0.3
"""Of the newest part in the speed of reading."""


class Prefill:
    """Reads prompts into the sequences of the target's KV cache, as far as they are missing."""

    def __init__(self, target: Target, drafter: Drafter) -> None:
        self._target = target
        self._drafter = drafter
        self.cached: dict[int, list[int]] = {}
        """Tokens in the target's KV cache, by sequence; the one used last comes last."""
        self.prefix_cache: PrefixCache | None = None
        """KV caches saved by earlier sessions; None where they are not used."""
        self._conversations: dict[int, tuple[str, list[int]]] = {}
        """Text and tokens of what rests in a sequence."""
        self._rate = 0.0
        """Tokens read per second; 0 where none were."""

    def choose(self, prompt: Sequence[int], free: Sequence[int]) -> int:
        """The free sequence that a prompt is best read into: one whose tokens it continues, else
        the one that was not used for the longest time.
        """

        def value(seq: int) -> tuple[int, int, int]:
            cached = self.cached.get(seq, [])
            shared = common_prefix(cached, prompt)
            # A few tokens that all prompts begin with are no reason to overwrite a conversation.
            continued = 2 * shared >= min(len(cached), len(prompt))
            return shared if continued else 0, -order.get(seq, -1), -seq

        order = {seq: turn for turn, seq in enumerate(self.cached)}
        return max(free, key=value)

    def begin(self, generation: Generation) -> list[ReplyEvent]:
        """Keep what the sequence shares with the prompt of a generation, and forget the rest.

        Raises:
            AuditError: the KV cache is not what it is taken for.
        """
        seq, prompt = generation.seq, generation.tokens
        self._audit(seq)
        events: list[ReplyEvent] = []
        if self.prefix_cache is not None:
            self.cached[seq] = self.prefix_cache.restore(seq, self.cached.get(seq, []), prompt)
            events += map(Notice, self.prefix_cache.take_notices())
        reused = self._cut(seq, prompt)
        generation.start_reading(reused)
        if reused < len(prompt) - 1:
            events.append(Reading(reused, len(prompt), reused))
        return events

    def unread(self, generation: Generation) -> int:
        """Tokens of the prompt that are still to be read: all but the last one are."""
        return len(generation.tokens) - 1 - len(self.cached[generation.seq])

    def part(self, seconds: float) -> int:
        """Tokens that are read in about so many seconds."""
        if not self._rate:
            return FIRST_PART
        return max(LEAST_PART, min(PART, int(seconds * self._rate)))

    def read(
        self, generation: Generation, drafter: Drafter, policy: Policy, most: int = PART
    ) -> list[ReplyEvent]:
        """Read the next ``most`` tokens of the prompt; once none is left, decoding may begin.

        Raises:
            Interrupted, DecodeError: the parts read before stay cached.
        """
        target, seq, prompt = self._target, generation.seq, generation.tokens
        at = len(self.cached[seq])
        end = min(at + most, len(prompt) - 1)
        drafts = policy.expects_drafts(generation.state)
        if at < end:
            start = time.perf_counter()
            target.read(seq, prompt[at:end])
            seconds = time.perf_counter() - start
            self.sync(generation)
            drafter.follow(seq, prompt, end)
            if drafts and end < len(prompt) - 1:
                drafter.catch_up(seq, prompt, end)
            self._learn(end - at, seconds)
        if end < len(prompt) - 1:
            return [Reading(end, len(prompt), generation.reused)]
        if drafts:
            drafter.commit([Committed(seq, prompt, prompt)])  # nothing was drafted: no evidence
        generation.start_decoding()
        return [Reading(len(prompt), len(prompt), generation.reused)]

    def _learn(self, tokens: int, seconds: float) -> None:
        rate = tokens / max(seconds, 1e-9)
        self._rate += (rate - self._rate) * (_WEIGHT if self._rate else 1.0)
        if self.prefix_cache is not None:
            self.prefix_cache.has_read(tokens, seconds)

    def row_after(self, tokens: list[int], free: Sequence[int]) -> tuple[int, Logits]:
        """A free sequence that then caches ``tokens``, and (V,) the target's logits after them."""
        target, seq = self._target, self.choose(tokens, free)
        self._audit(seq)
        reused = self._cut(seq, tokens)
        if reused < len(tokens) - 1:
            target.read(seq, tokens[reused:-1])
        (scores,) = target.score([Work(seq, tokens[-1], no_draft("examine"))])
        row: Logits = scores.logits[0].copy()
        target.keep(seq, ())
        self.cached[seq] = list(tokens)
        return seq, row

    def sync(self, generation: Generation) -> None:
        """Record that the KV cache contains the beginning of the generation's tokens, as long as
        it is.
        """
        seq = generation.seq
        self.cached.pop(seq, None)
        self.cached[seq] = list(generation.tokens[: self._target.length(seq)])

    def rests(self, generation: Generation, text: str, tokens: list[int]) -> None:
        """Its conversation, with the reply, has this text and these tokens."""
        self._conversations[generation.seq] = text, tokens

    def reset(self, seq: int) -> None:
        """Empty the caches of target and drafter: after a failure they are not trusted."""
        self.cached.pop(seq, None)
        self._conversations.pop(seq, None)
        with contextlib.suppress(LocalspecError):
            self._target.truncate(seq, 0)
            self._drafter.close(seq)

    def forget(self, seq: int) -> None:
        """Empty a sequence, so that others may use it."""
        self.cached.pop(seq, None)
        self._conversations.pop(seq, None)
        self._target.truncate(seq, 0)

    def save(self, cancelled: Callable[[], bool]) -> None:
        """Save the KV caches of conversations that rest, if that is wanted."""
        if self.prefix_cache is None:
            return
        for seq, (text, tokens) in self._conversations.items():
            if not cancelled():
                cached = self.cached.get(seq, [])
                self.prefix_cache.save(seq, cached, text, tokens, cancelled)

    def _audit(self, seq: int) -> None:
        """Refuse a KV cache that is shorter than the tokens believed to be in it.

        Raises:
            AuditError: it is.
        """
        target, believed = self._target, len(self.cached.get(seq, ()))
        target.audit(seq)
        if target.length(seq) < believed:
            raise AuditError(
                f"target has cached {target.length(seq)} tokens; expected {believed} or more"
            )

    def _cut(self, seq: int, prompt: list[int]) -> int:
        """Truncate the KV cache to the beginning that ``prompt`` shares with it, less the prompt's
        last token; returns its length.
        """
        target = self._target
        reused = min(common_prefix(self.cached.get(seq, []), prompt), len(prompt) - 1)
        try:
            target.truncate(seq, reused)
        except DecodeError:  # this kind of cache can only be emptied
            reused = 0
            target.truncate(seq, reused)
        self._conversations.pop(seq, None)
        self.cached.pop(seq, None)
        self.cached[seq] = prompt[:reused]
        return reused


__all__ = ["FIRST_PART", "LEAST_PART", "PART", "Prefill"]
