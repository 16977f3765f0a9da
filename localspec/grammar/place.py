"""A matcher of llguidance at a place of one reply, and what moving it there may take."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.core.errors import GrammarError
from localspec.grammar.compiling import limits, one_line, refuse
from localspec.grammar.guard import Guard

BURST_SECONDS = 0.2
"""Seconds of computing that a reply may take for its grammar at once; all others wait for it."""
TOKEN_SECONDS = 0.02
"""Further seconds for each of its tokens."""
AHEAD_SECONDS = 0.05
"""Seconds of computing in a round for what is only drafted; after more, the rest of the reply
looks at nothing ahead."""
_CHEAP_SECONDS = 0.02
"""Seconds of computing to make a matcher anew while others wait."""
_OWN_RULES = frozenset({"lark", "gbnf"})
"""Kinds of grammars in which rules may end at one place that began at all places before it: such a
step takes time that grows with the square of the reply, whatever the library's limits."""
_FORCED = 64
"""Tokens of a reply until which those that such a grammar forces are asked for: the library looks
ahead for them without an end, and no other thread of Python runs meanwhile."""


class Effort:
    """Seconds of computing that a reply has taken for its grammar."""

    def __init__(self) -> None:
        self.looks_ahead = True
        """Whether places behind drafted tokens are looked at."""
        self.guarded = 0.0
        """Seconds in the guard's threads."""
        self.behind = 0.0
        """Seconds that reading the emitted tokens took: reading them again takes as long."""
        self._owed = 0.0
        """Seconds that emitted tokens took beyond `TOKEN_SECONDS` each."""
        self._ahead = 0.0
        """Seconds that drafted ones took in this round."""

    def _computed(self) -> float:
        """Seconds of computing, of this thread and in the guard's."""
        return time.thread_time() + self.guarded

    @contextlib.contextmanager
    def for_reply(self) -> Iterator[None]:
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
    def ahead_of_reply(self) -> Iterator[None]:
        """Computing for what is only drafted; where it takes too much, that was the last of it."""
        began = self._computed()
        yield
        self._ahead += self._computed() - began
        if self._ahead > AHEAD_SECONDS:
            self.looks_ahead = False

    @contextlib.contextmanager
    def for_token(self) -> Iterator[None]:
        """Reading an emitted token. If it takes too much, the next mask says so."""
        began = self._computed()
        try:
            yield
        finally:
            spent = self._computed() - began
            self.behind += spent
            self._owed = max(0.0, self._owed + spent - TOKEN_SECONDS)
            self._ahead = 0.0


class Place:
    """One matcher that is moved along the sequence, back and forth: a place is reached by rolling
    back to what it shares with the last one, and reading the rest.

    llguidance raises nothing: after a token that it does not allow it stays in an error state. So
    tokens are only tried, and the state is checked after every call. It may also come to its limits
    with tokens that are allowed: another matcher then follows the emitted ones.
    """

    def __init__(self, tokenizer: Any, grammar: str, kind: str) -> None:
        """``tokenizer`` is an ``LLTokenizer``, ``grammar`` from `compiling.compiled`, ``kind`` that
        of its spec.

        Raises:
            UsageError: the grammar is not valid for this vocabulary, or too large.
        """
        from llguidance import LLMatcher

        new = partial(LLMatcher, tokenizer, grammar, log_level=0, limits=limits())
        began = time.thread_time()
        self.matcher = new()
        self._new: Callable[[], Any] = new
        if time.thread_time() - began > _CHEAP_SECONDS:
            self._new = _Spare(new())
        if self.matcher.is_error():
            refuse(kind, self.matcher.get_error())
        self.effort = Effort()
        self.guard = Guard() if kind in _OWN_RULES else None
        """Computes the masks of grammars whose steps have no limit."""
        self.read: list[int] = []
        """Tokens that the matcher has read, from where the grammar begins."""
        self._stuck = False
        """Whether a thread that was left behind computes with the matcher."""

    @property
    def accepting(self) -> bool:
        """Whether the reply may end here."""
        return bool(self.matcher.is_accepting())

    @property
    def stopped(self) -> bool:
        """Whether nothing may follow."""
        return bool(self.matcher.is_stopped())

    def seek(self, before: Sequence[int], begin: int, settled: int) -> bool:
        """Move to the place after ``before``, whose first ``settled`` tokens are as they were;
        False where the grammar, from ``begin`` on, forbids one of its tokens: it is then at the
        place before that one.
        """
        if self._stuck:
            raise GrammarError("the grammar took too long to be followed; the reply ends there")
        length = len(before) - begin
        same = max(0, min(settled - begin, length, len(self.read)))
        ahead = before[begin + same :]
        here = self.read[same:]
        for one, other in zip(ahead, here, strict=False):
            if one != other:
                break
            same += 1
        if same < len(self.read):
            if self.matcher.rollback(len(self.read) - same):
                del self.read[same:]
            else:  # it cannot in grammars that limit the tokens of a part
                self.start_again()
                same = 0
        new = list(before[begin + same :])
        read = self.matcher.try_consume_tokens(new) if new else 0
        self.require_sound()
        self.read += new[:read]
        return bool(read == len(new))

    def mask(self, words: NDArray[np.uint32]) -> None:
        """Compute the mask of this place, a bit for each token.

        Raises:
            GrammarError: that takes too long, or cannot be done.
        """
        matcher = self.matcher

        def step() -> None:
            matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)

        if self.guard is None:
            step()
        else:
            try:
                self.effort.guarded += self.guard.run(step, BURST_SECONDS)
            except GrammarError:
                self._stuck = True
                raise
        self.require_sound()

    @property
    def may_look_far(self) -> bool:
        """Whether forced tokens may be asked for."""
        return self.guard is None or len(self.read) < _FORCED

    def forced(self) -> list[int]:
        """Tokens that must follow."""
        found: list[int] = self.matcher.compute_ff_tokens()
        self.require_sound()
        return found

    def legal(self, tokens: Sequence[int]) -> int:
        """How many of the tokens may follow."""
        found = int(self.matcher.validate_tokens(list(tokens)))
        self.require_sound()
        return found

    def ends_with(self, token: int) -> bool:
        """Whether the reply is complete here, or with an end token that the grammar itself has."""
        if self.accepting:
            return True
        complete = self.matcher.consume_token(token) and self.accepting
        self.start_again()  # `try_consume_tokens` would not have read it
        return bool(complete)

    def require_sound(self) -> None:
        """Refuse to go on with a matcher in its error state; there is another one afterwards.

        Raises:
            GrammarError: it is.
        """
        if self.matcher.is_error():
            reason = one_line(self.matcher.get_error())[:200]
            self.start_again()
            raise GrammarError(
                f"the grammar cannot be followed: no text fits it, or it is too complex ({reason})"
            )

    def start_again(self) -> None:
        """Make another matcher, which has read nothing, and look at no draft any more.

        Raises:
            GrammarError: that would take too long.
        """
        self.effort.looks_ahead = False
        if self.effort.behind > BURST_SECONDS:
            raise GrammarError(_TOO_COSTLY)
        self.matcher, self.read = self._new(), []


_TOO_COSTLY = (
    "the grammar is too costly to be followed once more from its beginning; the reply ends there, "
    "incomplete"
)


class _Spare:
    """The second matcher of a grammar for which none can be made while others wait."""

    def __init__(self, matcher: Any) -> None:
        self._matcher: Any | None = matcher

    def __call__(self) -> Any:
        found, self._matcher = self._matcher, None
        if found is None:
            raise GrammarError(_TOO_COSTLY)
        return found
