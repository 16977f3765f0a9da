"""DRY's search: which tokens would go on with a repetition, and how long it is by now.

Definition: llama.cpp's ``llama_sampler_dry_apply``, which follows koboldcpp's (p-e-w, pi6am 2024).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

Breakers = Mapping[int, tuple[tuple[int, ...], ...]]
"""By the first token of a text that ends repetitions: what has to follow it, often nothing."""
NO_BREAKERS: Breakers = {}
_LONGEST_TAIL = 20
"""Tokens, as in llama.cpp."""


def continuations(
    lately: Sequence[int], allowed: int, breakers: Breakers, most: int
) -> dict[int, int]:
    """By token, the length of the longest repetition that it would go on with, from ``allowed`` on.

    A repetition is an end of ``lately`` that was there before, up to the last breaker. Lengths
    beyond ``allowed`` + ``most`` are cut to it; ``most`` is 0 where lengths make no difference.
    """
    n = len(lately)
    if n <= allowed:
        return {}
    limit = _limit(lately, breakers)
    if limit < allowed:
        return {}
    limit = min(limit, allowed + most)
    tokens = np.asarray(lately, np.int64)
    lengths = np.zeros(n - 1, np.int64)
    """Of the repetition that ends at each place but the last."""
    ends = np.arange(n - 1)
    for length in range(limit):
        ends = ends[ends >= length]
        ends = ends[tokens[ends - length] == tokens[n - 1 - length]]
        if not len(ends):
            break
        lengths[ends] = length + 1
    found: dict[int, int] = {}
    for place in np.flatnonzero(lengths >= allowed).tolist():
        token = int(tokens[place + 1])
        if lengths[place] > found.get(token, -1) and () not in breakers.get(token, ()):
            found[token] = int(lengths[place])
    return found


def _limit(lately: Sequence[int], breakers: Breakers) -> int:
    """Tokens since the last breaker; all where there is none."""
    n = len(lately)
    if not breakers:
        return n
    for back in range(n):
        tails = breakers.get(lately[n - 1 - back])
        if tails is None:
            continue
        after = tuple(lately[n - back : n - back + _LONGEST_TAIL])
        longest = max((len(tail) for tail in tails if after[: len(tail)] == tail), default=-1)
        if longest >= 0:
            return back - longest
    return n


def breakers_of(
    texts: Sequence[str], pieces: Sequence[bytes], tokenize: Callable[[str], Sequence[int]]
) -> Breakers:
    """The tokens of some texts: those that contain one whole, and those that end with its
    beginning, with the tokens of its rest. ``pieces`` are the texts of all tokens.
    """
    found: dict[int, list[tuple[int, ...]]] = {}
    for text in texts:
        raw = text.encode("utf-8", "replace")
        rests = {
            raw[:cut]: tuple(tokenize(raw[cut:].decode("utf-8", "replace")))[:_LONGEST_TAIL]
            for cut in range(1, len(raw))
        }
        for token, piece in enumerate(pieces):
            if raw in piece:
                found.setdefault(token, []).append(())
            elif rests:
                tails = [tail for head, tail in rests.items() if piece.endswith(head)]
                if tails:
                    found.setdefault(token, []).extend(dict.fromkeys(tails))
    return {token: tuple(dict.fromkeys(tails)) for token, tails in found.items()}
