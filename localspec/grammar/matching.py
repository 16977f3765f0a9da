"""Follows a grammar along one reply: masks, forced tokens, and whether the reply is complete."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.core.constraint import TokenMask
from localspec.core.token_view import TokenView
from localspec.core.values import Draft
from localspec.errors import AuditError, GrammarError, LocalspecError
from localspec.grammar.compiling import limits, one_line, refuse
from localspec.grammar.guard import Guard
from localspec.grammar.thinking import Thinking

_WORKER = ThreadPoolExecutor(1, "grammar")
"""Computes masks while the target computes logits: both run without the interpreter's lock."""


_LARGE = 32768
"""Tokens of a vocabulary from which masks are worth a thread: below, handing them over takes as
long as computing them."""
BURST_SECONDS = 0.2
"""Of computing that a reply may take for its grammar at once; all other replies wait for it."""
TOKEN_SECONDS = 0.02
"""More for each of its tokens."""
AHEAD_SECONDS = 0.05
"""Of computing in one round for what is only drafted: beyond it the reply is drafted no more."""
_CHEAP_SECONDS = 0.02
"""Of computing, to make a matcher anew while others wait."""
_OWN_RULES = frozenset({"lark", "gbnf"})
"""Kinds of grammars in which rules may end at one place that began at all places before it: such a
step takes time that grows with the square of the reply, whatever the library's limits."""
_FORCED = 64
"""Tokens of a reply until which those that such a grammar forces are asked for: the library looks
ahead for them without an end, and no other thread of Python runs meanwhile."""


class GrammarMatcher:
    """A `localspec.core.constraint.Constraint` on llguidance.

    One matcher is moved along the sequence, back and forth: a place is reached by rolling back to
    what it shares with the last one, and reading the rest. So chains, trees, probes of earlier
    tokens and emitted ones are all the same to it.

    llguidance raises nothing: after a token that it does not allow it stays in an error state. So
    tokens are only tried, and the state is checked after every call. It may also come to its limits
    with tokens that are allowed. Where drafted tokens bring it there, the reply must not notice:
    another matcher follows the emitted ones, and it is asked for nothing that is only drafted.
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
        """``tokenizer`` is an ``LLTokenizer``, ``grammar`` from `compiling.compiled`, ``kind`` that
        of its spec; the reply begins at token ``start`` of the sequence, or after its ``thinking``.

        Raises:
            UsageError: the grammar is not valid for this vocabulary, or too large.
        """
        from llguidance import LLMatcher

        new = partial(LLMatcher, tokenizer, grammar, log_level=0, limits=limits())
        began = time.thread_time()
        self._matcher = new()
        self._new: Callable[[], Any] = new
        if time.thread_time() - began > _CHEAP_SECONDS:
            self._new = _Spare(new())
        self._guard = Guard() if kind in _OWN_RULES else None
        self._stuck = False
        """Whether a thread that was left behind computes with the matcher."""
        self._behind = 0.0
        """Seconds that reading the emitted tokens took: reading them again takes as long."""
        self._looks_ahead = True
        """Whether places behind drafted tokens are looked at."""
        if self._matcher.is_error():
            refuse(kind, self._matcher.get_error())
        self._owed = 0.0
        """Seconds that emitted tokens took beyond `TOKEN_SECONDS` each."""
        self._ahead = 0.0
        """Seconds that drafted ones took in this round."""
        self._guarded = 0.0
        """Seconds of computing in the guard's threads."""
        self._start = start
        self._words = (n_vocab + 31) // 32
        self._ends = end_ids
        self._thinking = thinking
        self._begin = start if thinking is None else None
        """Where the grammar begins; None while the emitted tokens do not tell."""
        self._settled = start
        """Length with the emitted tokens; tokens before it are not compared again."""
        self._read: list[int] = []
        """Tokens that the matcher has read, from where the grammar begins."""
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
                if drafted and not self._looks_ahead:
                    raise GrammarError("the grammar is too complex to be followed through drafts")
                with self._ahead_of_reply() if drafted else self._for_reply():
                    self._masks[drafted] = self._mask(before)
            return self._masks[drafted]

    @contextlib.contextmanager
    def _for_reply(self) -> Iterator[None]:
        """Computing that the reply cannot do without.

        Raises:
            GrammarError: it has taken too much of it.
        """
        began = self._computed()
        yield
        self._owed += self._computed() - began
        if self._owed > BURST_SECONDS:
            raise GrammarError(
                f"following the grammar takes too long here: {1000 * self._owed:.0f} ms, and "
                f"{1000 * BURST_SECONDS:.0f} ms are the most while others wait; the reply ends "
                "there, incomplete"
            )

    @contextlib.contextmanager
    def _ahead_of_reply(self) -> Iterator[None]:
        """Computing for what is only drafted; where it takes too much, that was the last of it."""
        began = self._computed()
        yield
        self._ahead += self._computed() - began
        if self._ahead > AHEAD_SECONDS:
            self._looks_ahead = False

    def _computed(self) -> float:
        """Seconds of computing, of this thread and in the guard's."""
        return time.thread_time() + self._guarded

    def _mask(self, before: Sequence[int]) -> TokenMask | None:
        begin = self._begin_of(before)
        if begin is None or begin > len(before):
            return self._while_thinking()
        if self._guard is not None:
            self._look_at_places_before(before, max(begin, self._settled))
        if not self._seek(before, begin):
            # A draft may go on after an end of the reply; what it has there is never asked for.
            if before[begin + len(self._read)] in self._ends or (
                self._read and self._read[-1] in self._ends
            ):
                return self._only_ends()
            raise AuditError("a mask was asked for after a token that the grammar forbids")
        words = np.empty(self._words, np.uint32)
        self._compute(words)
        self._require_sound()
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

    def _compute(self, words: NDArray[np.uint32]) -> None:
        """Compute the mask of the matcher's place.

        Raises:
            GrammarError: that takes too long.
        """
        matcher = self._matcher

        def step() -> None:
            matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)

        if self._guard is None:
            step()
            return
        try:
            self._guarded += self._guard.run(step, BURST_SECONDS)
        except GrammarError:
            self._stuck = True
            raise

    def _while_thinking(self) -> TokenMask:
        """Everything but an end of the reply."""
        return TokenMask(~self._only_ends().words)

    def _only_ends(self) -> TokenMask:
        words = np.zeros(self._words, np.uint32)
        for token in self._ends:
            words[token >> 5] |= np.uint32(1 << (token & 31))
        return TokenMask(words)

    def over(self, before: Sequence[int]) -> bool:
        """See `Constraint.over`."""
        with self._lock:
            begin = self._begin_of(before)
            if begin is None or begin >= len(before) or not self._looks_ahead:
                return False
            try:
                with self._ahead_of_reply():
                    if self._guard is not None:
                        self._look_at_places_before(before, max(begin, self._settled))
                    return self._seek(before, begin) and bool(self._matcher.is_stopped())
            except GrammarError:
                return False

    def forced(self, before: Sequence[int]) -> list[int]:
        """See `Constraint.forced`."""
        with self._lock:
            begin = self._begin_of(before)
            if begin is None or (len(before) == self._start and self._may_think()):
                return []
            if not self._looks_ahead or not self._may_look_far():
                return []
            try:
                with self._ahead_of_reply():
                    if not self._seek(before, begin):
                        return []
                    found: list[int] = self._matcher.compute_ff_tokens()
                    self._require_sound()
            except GrammarError:
                return []
            return found

    def legal(self, before: Sequence[int], tokens: Sequence[int]) -> int:
        """See `Constraint.legal`."""
        with self._lock:
            begin = self._begin_of(before)
            if not self._looks_ahead:
                return 0
            try:
                thinks = begin is None or (len(before) == self._start and self._may_think())
                if thinks or self._guard is not None:
                    return self._legal_by_masks(before, tokens)
                assert begin is not None
                with self._ahead_of_reply():
                    if not self._seek(before, begin):
                        return 0
                    found = int(self._matcher.validate_tokens(list(tokens)))
                    self._require_sound()
            except GrammarError:
                return 0
            return found

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
        with self._lock:
            began = self._computed()
            try:
                return self._taken(before)
            finally:  # if that was too much, the next mask says so: this token is emitted
                spent = self._computed() - began
                self._behind += spent
                self._owed = max(0.0, self._owed + spent - TOKEN_SECONDS)
                self._ahead = 0.0

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
                self._complete = self._ends_with(token, place, self._begin)
                return False
            if not self._seek(before, self._begin):
                raise AuditError("a token was emitted that the grammar forbids")
            self._complete = bool(self._matcher.is_accepting())
        self._settled = len(before)
        stopped = self._begin is not None and self._complete and self._matcher.is_stopped()
        self._require_sound()
        return bool(stopped)

    def _ends_with(self, token: int, place: Sequence[int], begin: int) -> bool:
        """Whether the reply is complete before its end token, or with it, where the grammar itself
        has it.
        """
        if not self._seek(place, begin):
            return False
        if self._matcher.is_accepting():
            return True
        complete = self._matcher.consume_token(token) and self._matcher.is_accepting()
        self._start_again()  # `try_consume_tokens` would not have read it
        return bool(complete)

    def _may_look_far(self) -> bool:
        return self._guard is None or len(self._read) < _FORCED

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
        """Move the matcher to the place after ``before``; False where the grammar forbids one of
        its tokens; the matcher is then at the place before that one.
        """
        if self._stuck:
            raise GrammarError("the grammar took too long to be followed; the reply ends there")
        length = len(before) - begin
        same = max(0, min(self._settled - begin, length, len(self._read)))
        ahead = before[begin + same :]
        here = self._read[same:]
        for one, other in zip(ahead, here, strict=False):
            if one != other:
                break
            same += 1
        if same < len(self._read):
            if self._matcher.rollback(len(self._read) - same):
                del self._read[same:]
            else:  # it cannot in grammars that limit the tokens of a part
                self._start_again()
                same = 0
        new = list(before[begin + same :])
        read = self._matcher.try_consume_tokens(new) if new else 0
        self._require_sound()
        self._read += new[:read]
        return bool(read == len(new))

    def _require_sound(self) -> None:
        """Refuse to go on with a matcher in its error state; there is another one afterwards.

        Raises:
            GrammarError: it is.
        """
        if self._matcher.is_error():
            reason = one_line(self._matcher.get_error())[:200]
            self._start_again()
            raise GrammarError(
                f"the grammar cannot be followed: no text fits it, or it is too complex ({reason})"
            )

    def _start_again(self) -> None:
        """Make another matcher, which has read nothing, and look at no draft any more.

        Raises:
            GrammarError: that would take too long.
        """
        self._looks_ahead = False
        if self._behind > BURST_SECONDS:
            raise GrammarError(
                "the grammar is too costly to be followed once more from its beginning; the reply "
                "ends there, incomplete"
            )
        self._matcher, self._read = self._new(), []


class _Spare:
    """The second matcher of a grammar for which none can be made while others wait."""

    def __init__(self, matcher: Any) -> None:
        self._matcher: Any | None = matcher

    def __call__(self) -> Any:
        found, self._matcher = self._matcher, None
        if found is None:
            raise GrammarError(
                "the grammar is too costly to be followed once more from its beginning; the reply "
                "ends there, incomplete"
            )
        return found
