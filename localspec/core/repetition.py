"""DRY's search: which tokens would go on with a repetition, and how long it is by now.

Definition: llama.cpp's ``llama_sampler_dry_apply``, which follows koboldcpp's (p-e-w, pi6am 2024).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]
Breakers = Mapping[int, tuple[tuple[int, ...], ...]]
"""By the first token of a text that ends repetitions: what has to follow it, often nothing."""
NO_BREAKERS: Breakers = {}
_LONGEST_TAIL = 20
"""Tokens, as in llama.cpp."""
_KEPT = 8
"""Texts whose repetitions are remembered: those of the last rows."""
_MOST_NEW = 4
"""Tokens by which a text may be longer than one of them."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The repetitions of a text of n tokens."""

    tokens: Tokens
    lengths: Tokens
    """(n - 1,) tokens before and at each place but the last that the text ends with too."""
    place: int
    """The last place of a breaker, of those that nothing to come can change; -1: there is none."""
    tail: int
    """Tokens after it that belong to it."""

    def new_in(self, tokens: Tokens) -> int | None:
        """How many tokens another text has after these, of which the first ones may be gone; None
        where it is not so.
        """
        held, n = len(self.tokens), len(tokens)
        for new in range(_MOST_NEW + 1):
            gone = held + new - n
            if 0 <= gone < held and np.array_equal(tokens[: n - new], self.tokens[gone:]):
                return new
        return None

    def without(self, gone: int) -> _Known:
        """The same without its first tokens."""
        if not gone:
            return self
        most = np.arange(1, len(self.lengths) - gone + 1)
        lengths = np.minimum(self.lengths[gone:], most)
        return _Known(self.tokens[gone:], lengths, max(-1, self.place - gone), self.tail)


class Repetitions:
    """Finds them for one request after another row, in a time that grows with the text alone: what
    is known of a text is what has to be known of the next one.
    """

    def __init__(self, breakers: Breakers = NO_BREAKERS) -> None:
        self._tails = {
            token: {n: {t for t in tails if len(t) == n} for n in {len(t) for t in tails}}
            for token, tails in breakers.items()
        }
        self._known: deque[_Known] = deque(maxlen=_KEPT)

    def continuations(
        self, lately: Sequence[int] | Tokens, allowed: int, most: int
    ) -> dict[int, int]:
        """By token, the length of the longest repetition that it would go on with, from ``allowed``
        on.

        A repetition is an end of ``lately`` that was there before, up to the last breaker. Lengths
        beyond ``allowed`` + ``most`` are cut to it; ``most`` is 0 where lengths make no difference.
        """
        tokens = np.asarray(lately, np.int64)
        if len(tokens) <= allowed:
            return {}
        known = self._of(tokens)
        limit = self._limit(known)
        if limit < allowed:
            return {}
        lengths = np.minimum(known.lengths, min(limit, allowed + most))
        places = np.flatnonzero(lengths >= allowed)
        following, counts = tokens[places + 1], lengths[places]
        order = np.lexsort((counts, following))
        following, counts = following[order], counts[order]
        last = np.flatnonzero(np.append(following[1:] != following[:-1], True))[: len(following)]
        return {
            token: length
            for token, length in zip(following[last].tolist(), counts[last].tolist(), strict=True)
            if 0 not in self._tails.get(token, {})
        }

    def _of(self, tokens: Tokens) -> _Known:
        for known in reversed(self._known):
            new = known.new_in(tokens)
            if new is None:
                continue
            found = known.without(len(known.tokens) + new - len(tokens))
            for token in tokens[len(tokens) - new :]:
                found = self._longer(found, token)
            break
        else:
            found = self._begun(tokens)
        self._known.append(found)
        return found

    def _begun(self, tokens: Tokens) -> _Known:
        """Repetitions of a text of which nothing is known: the Z-algorithm, from its end."""
        back = tokens[::-1].tolist()
        n = len(back)
        z = [0] * n
        left = right = 0
        for i in range(1, n):
            k = min(right - i, z[i - left]) if i < right else 0
            while i + k < n and back[k] == back[i + k]:
                k += 1
            z[i] = k
            if i + k > right:
                left, right = i, i + k
        lengths = np.array(z[:0:-1], np.int64)
        settled = tokens[: max(0, n - _LONGEST_TAIL - 1)]
        for place in np.flatnonzero(np.isin(settled, [*self._tails]))[::-1].tolist():
            tail = self._tail(tokens, place)
            if tail >= 0:
                return _Known(tokens, lengths, place, tail)
        return _Known(tokens, lengths, -1, 0)

    def _longer(self, known: _Known, token: np.int64) -> _Known:
        """Repetitions of the known text with a token more."""
        before = np.append(0, known.lengths)
        lengths = np.where(known.tokens == token, 1 + before, 0)
        tokens = np.append(known.tokens, token)
        settled = len(tokens) - _LONGEST_TAIL - 2
        tail = self._tail(tokens, settled) if settled >= 0 else -1
        place, tail = (settled, tail) if tail >= 0 else (known.place, known.tail)
        return _Known(tokens, lengths, place, tail)

    def _tail(self, tokens: Tokens, place: int) -> int:
        """The most tokens after a place that belong to a breaker there; -1: there is none."""
        tails = self._tails.get(int(tokens[place]))
        if tails is None:
            return -1
        after = tuple(tokens[place + 1 : place + 1 + _LONGEST_TAIL].tolist())
        return max((n for n in tails if n <= len(after) and after[:n] in tails[n]), default=-1)

    def _limit(self, known: _Known) -> int:
        """Tokens since the last breaker; all where there is none."""
        n = len(known.tokens)
        if not self._tails:
            return n
        for back in range(min(n, _LONGEST_TAIL + 1)):
            tail = self._tail(known.tokens, n - 1 - back)
            if tail >= 0:
                return back - tail
        return n if known.place < 0 else n - 1 - known.place - known.tail


def breakers_of(
    texts: Sequence[str], pieces: Sequence[bytes], tokenize: Callable[[str], Sequence[int]]
) -> Breakers:
    """The tokens of some texts: those that contain one whole, and those that end with its
    beginning, with the tokens of its rest. ``pieces`` are the texts of all tokens.
    """
    raws = [text.encode("utf-8", "replace") for text in texts]
    heads = {raw[:cut] for raw in raws for cut in range(1, len(raw))}
    longest = max(map(len, heads), default=0)
    ending: dict[bytes, list[int]] = {}
    for token, piece in enumerate(pieces):
        for cut in range(1, min(len(piece), longest) + 1):
            if piece[-cut:] in heads:
                ending.setdefault(piece[-cut:], []).append(token)
    found: dict[int, dict[tuple[int, ...], None]] = {}
    for raw in raws:
        whole = {token for token, piece in enumerate(pieces) if raw in piece}
        for token in whole:
            found.setdefault(token, {})[()] = None
        for cut in range(1, len(raw)):
            rest = tuple(tokenize(raw[cut:].decode("utf-8", "replace")))[:_LONGEST_TAIL]
            for token in ending.get(raw[:cut], ()):
                if token not in whole:
                    found.setdefault(token, {})[rest] = None
    return {token: tuple(tails) for token, tails in found.items()}
