"""Prefill: reads prompts into the target's KV cache, reusing what it already contains."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from localspec.core import media_rows
from localspec.core.adapter_list import Blend
from localspec.core.emitted import PromptScored
from localspec.core.errors import LocalspecError, QueueFullError
from localspec.core.events import Notice, ReplyEvent
from localspec.core.target import ServingTarget, Work
from localspec.core.values import Draft, Logits, Proposal, chain_parents, no_draft
from localspec.decode.logprobs import TokenScorer
from localspec.drafters.base import Committed, Drafter
from localspec.generation.cached_sequences import CachedSequences
from localspec.generation.generation import Generation
from localspec.generation.part_sizes import PART, PartSizes
from localspec.policy.decide import BEHIND
from localspec.prefix_cache.cache import PrefixCache

_ENCODING_S = 0.4
"""Seconds between two reports of progress while a picture is encoded and nobody else waits."""
_TOGETHER_S = 1.0
"""Seconds that a pass over rows that see each other may take while others wait."""
_PATIENCE_S = 60.0
"""Seconds for which a longer one waits until nobody else does."""
_CATCH_UP_S = 0.1
"""Seconds in which the target would read what a drafter reads between two rounds."""
_BETWEEN_S = 0.2
"""Seconds that are read between two rounds when `Runtime.examine` reads."""


class Prefill:
    """Reads prompts into the sequences of the target's KV cache, as far as they are missing."""

    def __init__(self, target: ServingTarget, drafter: Drafter, prefix_cache: PrefixCache) -> None:
        self._target = target
        self._drafter = drafter
        self._prefix_cache = prefix_cache
        self.sequences = CachedSequences(target, drafter, prefix_cache)
        self.sizes = PartSizes(aborts=target.aborts)

    def begin(self, generation: Generation, *, waited_for: bool = False) -> list[ReplyEvent]:
        """Restore the beginning of a prompt that was read before, and forget what else the
        sequence holds; only what is quick while it is ``waited_for``. If it raises, the sequence is
        empty: what is in it half-way is neither the old text nor the prompt.

        Raises:
            LocalspecError: a pass failed, or the KV cache is not what it is taken for.
        """
        seq, prompt, prepared = generation.seq, generation.tokens, generation.prepared
        generation.start_restoring()
        try:
            restored = self.sequences.restore(
                seq, prepared.reusable, prepared.owner, prepared.blend, waited_for=waited_for
            )
        except LocalspecError:
            self.sequences.reset(seq)
            raise
        reused = restored.length
        events: list[ReplyEvent] = [*map(Notice, self._prefix_cache.take_notices())]
        generation.start_reading(reused, restored.saved_seconds)
        positions = self._prefix_cache.positions(seq, prompt, prepared.stable)
        generation.checkpoints = [media_rows.before(prompt, at) for at in positions]
        if reused < len(prompt) - 1:
            events.append(generation.progress(reused))
        if prepared.prompt_scorer is not None:
            events.append(PromptScored(0, (prompt[0],), (None,)))
        return events

    def unread(self, generation: Generation) -> int:
        """Tokens of the prompt that are still to be read: all but the last one are."""
        return len(generation.tokens) - 1 - len(self.sequences.tokens[generation.seq])

    def read(
        self,
        generation: Generation,
        most: int = PART,
        batch: int = 1,
        pause: float | None = None,
    ) -> list[ReplyEvent]:
        """Read about ``most`` further tokens of the prompt; once none is left, decoding may begin.
        A drafter that has much to read begins after the first token (`resume_drafts`).

        ``batch`` requests run, this one included; others wait for ``pause`` seconds, where it is
        not None. A picture is encoded and read in such parts.

        Raises:
            Interrupted, DecodeError: the parts read before stay cached.
        """
        target, seq, prompt = self._target, generation.seq, generation.tokens
        drafter = generation.drafter
        at = len(self.sequences.tokens[seq])
        checkpoints = [end for end in generation.checkpoints if end > at]
        scorer, events = generation.prepared.prompt_scorer, list[ReplyEvent]()
        left = min([len(prompt) - 1, *checkpoints]) - at
        part = self.sizes.of(left, most) if scorer is None else min(most, 1 + target.deepest(1))
        end = media_rows.after(prompt, at + min(part, left))
        drafts = self._decide_reading(generation, batch)
        alongside = self._along(generation, batch) if end == len(prompt) - 1 else 0
        if at < end <= at + alongside:
            self._target.read_along(seq, prompt[at:end])
            self.sequences.sync(generation)
            self._prefix_cache.has_read(seq, prompt[at:end], None)
            generation.postpone_drafts(drafter_reads=drafts and generation.drafter_unread > BEHIND)
            generation.start_decoding(reads_along=end - at)
            return [generation.progress(len(prompt))]
        end -= alongside if at < end else 0
        if at < end:
            start, wanted = time.perf_counter(), prompt[at:end]
            if scorer is None:
                end = self._appended(generation, at, end, most, pause)
            else:
                events.append(self._scored(seq, prompt, at, end, scorer))
            if at == end:
                return [generation.progress(at, encoding=True)]
            seconds = time.perf_counter() - start
            self.sequences.sync(generation)
            drafter.prompt_read(seq, prompt, end)
            if drafts and end < len(prompt) - 1:
                drafter.read_missed(seq, prompt, end)
            others_waited = time.perf_counter() - start
            self._learn(seq, wanted, end - at, others_waited, None if scorer else seconds)
            if end in checkpoints:
                self._prefix_cache.checkpoint(seq)
        if end < len(prompt) - 1:
            return [*events, generation.progress(end)]
        much = drafts and generation.drafter_unread > BEHIND
        if generation.typed or much:
            generation.postpone_drafts(drafter_reads=much)
        elif drafts:
            drafter.commit([Committed(seq, prompt, prompt)])  # nothing was drafted: no evidence
        generation.start_decoding()
        return [*events, generation.progress(len(prompt))]

    def _along(self, generation: Generation, batch: int) -> int:
        """Tokens at the end of a prompt that the first round reads, where somebody who types waits
        for its first characters. It would hold up other requests.
        """
        scored = generation.prepared.prompt_scorer is not None
        waits = generation.typed and batch == 1 and not scored
        return self._target.most_along(generation.seq) if waits else 0

    def _appended(
        self, generation: Generation, at: int, end: int, most: int, pause: float | None
    ) -> int:
        """Read a part, of pictures as much as a pause has time for; where it ends."""
        seq, part = generation.seq, generation.tokens[at:end]
        if not media_rows.has_rows(part):
            self._target.read(seq, part)
            return end
        if pause is not None and self._stands_back(generation, part, most, pause):
            return at
        generation.waits_since = None
        return at + self._target.read_within(
            seq, part, pause if pause is not None else _ENCODING_S, most
        )

    def _stands_back(
        self, generation: Generation, part: list[int], most: int, pause: float
    ) -> bool:
        """Whether one pass over rows of a picture would take too long for those who wait for it,
        where about ``most`` are read in a ``pause``.

        Raises:
            QueueFullError: others have waited for too long.
        """
        if self._target.noncausal_rows(part) * pause <= most * _TOGETHER_S:
            return False
        now = time.monotonic()
        if generation.waits_since is None:
            generation.waits_since = now
        if now - generation.waits_since > _PATIENCE_S:
            raise QueueFullError(
                "this picture needs a pass that other replies would wait for too long, and they "
                f"went on for {_PATIENCE_S:.0f} s: try again when they are done"
            )
        return True

    def _learn(
        self, seq: int, wanted: list[int], done: int, waited: float, seconds: float | None
    ) -> None:
        """Learn from a part that was read: ``done`` of the ``wanted`` tokens.

        Encoding a picture is not reading.
        """
        seen = media_rows.has_rows(wanted)
        if not seen:
            self.sizes.learn(done, waited)
        self._prefix_cache.has_read(seq, wanted[:done], None if seen else seconds)

    def resume_drafts(self, generation: Generation, batch: int) -> None:
        """Let a drafter read what was postponed until the first token was there: a part of it,
        where ``batch`` requests wait for that. Drafts begin once it has read it all.
        """
        if not generation.drafter_reads:
            generation.resume_drafts()
            return
        unread = generation.drafter_unread
        self._read_on(generation, unread if batch == 1 else self._part(unread))
        left = generation.drafter_unread
        if left <= BEHIND or left >= unread:  # or what is left cannot be read
            generation.resume_drafts()

    def _part(self, unread: int) -> int:
        """Tokens that a drafter reads between two rounds."""
        return min(unread, self.sizes.within(_CATCH_UP_S))

    @staticmethod
    def _read_on(generation: Generation, part: int) -> None:
        tokens = generation.tokens
        upto = len(tokens) - 1 - generation.drafter_unread + part
        generation.drafter.read_missed(generation.seq, tokens, media_rows.after(tokens, upto))

    def _decide_reading(self, generation: Generation, batch: int) -> bool:
        unread = generation.drafter_unread
        state = generation.request.state(self._target, unread=unread, batch=batch)
        return generation.policy.decide_reading(state)

    def catch_up(self, generation: Generation, batch: int) -> None:
        """Let a drafter read a part of what it has missed, where the policy has come to expect
        drafts: the others have ended, or the text is such as it knows.
        """
        unread = generation.drafter_unread
        if unread > BEHIND and self._decide_reading(generation, batch):
            self._read_on(generation, self._part(unread))

    def _scored(
        self, seq: int, prompt: list[int], at: int, end: int, scorer: TokenScorer
    ) -> PromptScored:
        """Read a part of the prompt as if it were a draft of which all is accepted: its rows are
        the logits of the tokens that follow.
        """
        part = np.array(prompt[at + 1 : end], np.int32)
        parents = chain_parents(len(part))
        draft = Draft(part, parents, Proposal.DETERMINISTIC, None, source="prompt")
        (scores,) = self._target.score([Work(seq, prompt[at], draft)])
        following = prompt[at + 1 : end + 1]
        places = [
            scorer.scored(row, token) for row, token in zip(scores.logits, following, strict=True)
        ]
        self._target.keep(seq, range(len(part)))
        return PromptScored(at + 1, tuple(following), tuple(places))

    def row_after(
        self, tokens: list[int], free: Sequence[int], owner: str, blend: Blend
    ) -> tuple[int, Logits] | None:
        """A free sequence that then caches ``tokens``, and (V,) the target's logits after them.
        None: only a part of what target or drafter lack was read, since other replies wait.

        Raises:
            QueueFullError: a picture would have to be read.
            LocalspecError: a pass failed, or the KV cache is not what it is taken for; the sequence
                is then empty.
        """
        target, waited_for = self._target, len(free) < self._target.sequences
        seq = self._prefix_cache.choose(tokens, blend.owner(owner), free)
        row: Logits | None = None
        try:
            reused = self.sequences.restore(seq, tokens, owner, blend, waited_for=waited_for).length
            displaced = media_rows.has_rows(tokens[reused:-1])
            if not displaced and self._has_read_all(seq, tokens, reused):
                (scores,) = target.score([Work(seq, tokens[-1], no_draft("examine"))])
                row = scores.logits[0].copy()
                target.keep(seq, ())
                self.sequences.tokens[seq] = list(tokens)
        except LocalspecError:
            self.sequences.reset(seq)
            raise
        self._prefix_cache.finished(seq, self.sequences.tokens[seq])
        if displaced:
            raise QueueFullError("other replies displaced a picture of this text; try again later")
        return None if row is None else (seq, row)

    def _has_read_all(self, seq: int, tokens: list[int], cached: int) -> bool:
        """Read a part of what target, then drafter lack; whether they lack nothing any more."""
        left = tokens[cached:-1]
        part = left[: self.sizes.of(len(left), self.sizes.within(_BETWEEN_S))]
        if part:
            start = time.perf_counter()
            self._target.read(seq, part)
            self.sizes.learn(len(part), time.perf_counter() - start)
            self.sequences.tokens[seq] = tokens[: cached + len(part)]
        unread = self._drafter.unread(seq, tokens)
        if len(part) < len(left) or (part and unread > BEHIND):
            return False
        reads = self._part(unread)
        if reads < unread:
            upto = len(tokens) - 1 - unread + reads
            self._drafter.read_missed(seq, tokens, media_rows.after(tokens, upto))
        return reads == unread or self._drafter.unread(seq, tokens) == unread
