"""Follows a grammar along one reply: masks, forced tokens, and whether the reply is complete."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from localspec.core.constraint import TokenMask
from localspec.core.errors import AuditError, GrammarError, LocalspecError
from localspec.core.values import Draft, TokenView
from localspec.grammar.place import Place
from localspec.grammar.thinking import Thinking

_WORKER = ThreadPoolExecutor(1, "grammar")
"""Computes masks while the target computes logits: both run without the interpreter's lock."""
_LARGE = 32768
"""Tokens of a vocabulary from which masks are worth a thread: below, handing them over takes as
long as computing them."""


class GrammarMatcher:
    """A `localspec.core.constraint.Constraint` on llguidance.

    Chains, trees, probes of earlier tokens and emitted ones are all places to which one matcher is
    moved (`Place`). Where drafted tokens bring it to its limits, the reply must not notice: it is
    asked for nothing any more that is only drafted.
    """

    def __init__(
        self,
        tokenizer: Any,
        grammar: str,
        kind: str,
        *,
        start: int,
        n_vocab: int,
        end_ids: frozenset[int],
        thinking: Thinking | None = None,
    ) -> None:
        """``tokenizer``, ``grammar`` and ``kind`` as `Place` takes them; the reply begins at token
        ``start`` of the sequence, or after its ``thinking``.

        Raises:
            UsageError: the grammar is not valid for this vocabulary, or too large.
        """
        self._tokenizer = tokenizer
        self._place = Place(tokenizer, grammar, kind)
        self._effort = self._place.effort
        self._start = start
        self._words = (n_vocab + 31) // 32
        self._ends = end_ids
        self._thinking = thinking
        self._begin = start if thinking is None else None
        """Where the grammar begins; None while the emitted tokens do not tell."""
        self._settled = start
        """Length with the emitted tokens; tokens before it are not compared again."""
        self._masks: dict[tuple[int, ...], TokenMask | None] = {}
        """Masks of this round, by the drafted tokens before their places."""
        self._lock = threading.RLock()
        self._round = 0
        self._complete = False
        self._ended = False

    # -- what it allows ------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """See `Constraint.complete`."""
        return self._complete

    def mask(self, before: Sequence[int]) -> TokenMask | None:
        """See `Constraint.mask`."""
        with self._lock:
            if len(before) < self._settled:  # a probe of emitted tokens
                return self._mask(before)
            drafted = tuple(before[self._settled :])
            if drafted not in self._masks:
                if drafted and not self._effort.looks_ahead:
                    raise GrammarError("the grammar is too complex to be followed through drafts")
                with self._effort.ahead_of_reply() if drafted else self._effort.for_reply():
                    self._masks[drafted] = self._mask(before)
            return self._masks[drafted]

    def _mask(self, before: Sequence[int]) -> TokenMask | None:
        begin = self._begin_of(before)
        if begin is None or begin > len(before):
            return self._while_thinking(before)
        if self._place.guard is not None:
            self._look_at_places_before(before, max(begin, self._settled))
        if not self._seek(before, begin):
            # A draft may go on after an end of the reply; what it has there is never asked for.
            read = self._place.read
            if before[begin + len(read)] in self._ends or (read and read[-1] in self._ends):
                return self._only_ends()
            raise AuditError("a mask was asked for after a token that the grammar forbids")
        words = np.empty(self._words, np.uint32)
        self._place.mask(words)
        if len(before) == self._start and self._thinking is not None:
            opening = self._thinking.optional
            if opening is not None:
                words[opening >> 5] |= np.uint32(1 << (opening & 31))
        mask = TokenMask(words)
        if not mask.count:
            raise GrammarError(
                "the grammar leads to a place where no token of this model may follow; the reply "
                "ends there, incomplete"
            )
        return mask

    def _look_at_places_before(self, before: Sequence[int], begin: int) -> None:
        """Compute the masks of drafted tokens, with the guard: reading a token costs no more than
        the mask of its place did, and cannot be left behind.
        """
        for end in range(begin, len(before)):
            place = tuple(before[self._settled : end])
            if place not in self._masks:
                self._masks[place] = self._mask(TokenView(before, length=end))

    def _while_thinking(self, before: Sequence[int]) -> TokenMask:
        """Everything but an end of the reply, and but what begins it in the token that ends the
        thinking.
        """
        assert self._thinking is not None
        words = ~self._only_ends().words
        for ids in self._thinking.close.beyond(before, self._start):
            np.bitwise_and.at(words, ids >> 5, ~(np.uint32(1) << (ids & 31).astype(np.uint32)))
        return TokenMask(words)

    def _only_ends(self) -> TokenMask:
        words = np.zeros(self._words, np.uint32)
        for token in self._ends:
            words[token >> 5] |= np.uint32(1 << (token & 31))
        return TokenMask(words)

    def over(self, before: Sequence[int]) -> bool:
        """See `Constraint.over`."""
        with self._lock:
            begin = self._begin_of(before)
            if begin is None or begin >= len(before) or not self._effort.looks_ahead:
                return False
            try:
                with self._effort.ahead_of_reply():
                    if self._place.guard is not None:
                        self._look_at_places_before(before, max(begin, self._settled))
                    return self._seek(before, begin) and self._place.stopped
            except GrammarError:
                return False

    def forced(self, before: Sequence[int]) -> list[int]:
        """See `Constraint.forced`."""
        with self._lock:
            begin = self._begin_of(before)
            if begin is None or (len(before) == self._start and self._may_think()):
                return []
            if not self._effort.looks_ahead or not self._place.may_look_far:
                return []
            try:
                with self._effort.ahead_of_reply():
                    if not self._seek(before, begin):
                        return []
                    return self._place.forced()
            except GrammarError:
                return []

    def legal(self, before: Sequence[int], tokens: Sequence[int]) -> int:
        """See `Constraint.legal`."""
        with self._lock:
            begin = self._begin_of(before)
            if not self._effort.looks_ahead:
                return 0
            try:
                thinks = begin is None or (len(before) == self._start and self._may_think())
                if thinks or self._place.guard is not None:
                    return self._legal_by_masks(before, tokens)
                assert begin is not None
                with self._effort.ahead_of_reply():
                    if not self._seek(before, begin):
                        return 0
                    return self._place.legal(tokens)
            except GrammarError:
                return 0

    def _legal_by_masks(self, before: Sequence[int], tokens: Sequence[int]) -> int:
        for n, token in enumerate(tokens):
            mask = self.mask(TokenView(before, tokens[:n]))
            if mask is not None and not mask.allows_token(token):
                return n
        return len(tokens)

    # -- a round -------------------------------------------------------------------------------

    def expect(self, before: Sequence[int], draft: Draft) -> None:
        """See `Constraint.expect`."""
        paths = [(), *(draft.prefix(node) for node in range(len(draft)))]
        missing = [path for path in paths if path not in self._masks]
        if missing and 32 * self._words >= _LARGE:
            _WORKER.submit(self._fill, self._round, before, len(before), missing)

    def _fill(
        self, at: int, text: Sequence[int], length: int, paths: Sequence[tuple[int, ...]]
    ) -> None:
        for path in paths:
            with self._lock:
                if self._round != at:
                    return
                try:
                    self.mask(TokenView(text, path, length))
                except LocalspecError:
                    return  # it is raised again where the mask is needed

    def take(self, before: Sequence[int]) -> bool:
        """See `Constraint.take`."""
        with self._lock, self._effort.for_token():
            return self._taken(before)

    def _taken(self, before: Sequence[int]) -> bool:
        self._round += 1
        self._masks.clear()
        token, place = before[-1], TokenView(before, length=len(before) - 1)
        begin = self._begin_of(place)
        if self._begin is None:
            self._begin = self._begin_of(before)
        if begin is not None and self._begin is not None:
            if token in self._ends:
                # It may be the first token, where the grammar allows an empty reply.
                self._ended = True
                self._complete = self._seek(place, self._begin) and self._place.ends_with(token)
                return False
            if not self._seek(before, self._begin):
                raise AuditError("a token was emitted that the grammar forbids")
            self._complete = self._place.accepting
        self._settled = len(before)
        stopped = self._begin is not None and self._complete and self._place.stopped
        self._place.require_sound()
        return stopped

    def fits(self, before: Sequence[int], rest: str) -> bool:
        """See `Constraint.fits`."""
        with self._lock:
            if self._begin is None or self._begin > len(before):
                return False  # it was cut inside the thinking
            text = [*before, *(self._tokenizer.greedy_tokenize(rest) if rest else ())]
            try:
                return self._place.seek(text, self._begin, len(before)) and self._place.accepting
            except GrammarError:
                return False

    # -- places --------------------------------------------------------------------------------

    def _may_think(self) -> bool:
        return self._thinking is not None and self._thinking.optional is not None

    def _begin_of(self, before: Sequence[int]) -> int | None:
        """Where the grammar begins in this sequence; None while the model thinks."""
        if self._begin is not None:
            return self._begin
        assert self._thinking is not None
        return self._thinking.end(before, self._start, self._settled)

    def _seek(self, before: Sequence[int], begin: int) -> bool:
        return self._place.seek(before, begin, self._settled)
