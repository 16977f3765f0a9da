"""Drafting with a second, smaller model of the same vocabulary."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from localspec.drafters import Ask, Committed
from localspec.noise import Stream
from localspec.values import Distribution, Draft, Logits, Proposal, chain_parents, no_draft


class DraftModel(Protocol):
    """A language model with a KV cache, as far as drafting needs one."""

    @property
    def capacity(self) -> int:
        """Tokens that one sequence may hold."""
        ...

    @property
    def vocabulary(self) -> int:
        """Ids that it can read and propose."""
        ...

    def extend(self, work: Sequence[tuple[int, Sequence[int]]]) -> list[Logits]:
        """Append tokens (at least one) to sequences in one pass; (V,) logits after the last of
        each, valid until the next pass. If it raises, nothing was appended.
        """
        ...

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first ``length`` tokens of the sequence."""
        ...


@dataclass(slots=True)
class _Cache:
    """What the draft model's KV cache holds of one sequence."""

    held: list[int] = field(default_factory=list)
    """Its tokens, the rejected ones only between propose and commit."""
    of: Sequence[int] | None = None
    """The token list that ``held`` is known to be a prefix of."""


@dataclass(slots=True)
class _Chain:
    """A draft in the making."""

    ask: Ask
    depth: int
    tokens: list[int] = field(default_factory=list)
    probs: list[Distribution] = field(default_factory=list)


class ModelDrafter:
    """A chain from a draft model (Leviathan et al. 2023, algorithm 1, the loop over x_i ~ q).

    COUPLED draws with the target's own noise, SAMPLED with noise of its own; at temperature 0
    both are argmax. SAMPLED noise is keyed by the round's first position too: a draw that an
    earlier round discarded must not influence a later one at the same place.
    """

    name = "model"

    def __init__(self, model: DraftModel, proposal: Proposal) -> None:
        if proposal not in {Proposal.COUPLED, Proposal.SAMPLED}:
            raise ValueError(f"a draft model does not propose {proposal.value} tokens")
        self._model = model
        self._proposal = proposal
        self._caches: dict[int, _Cache] = {}

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """Chains as deep as the budgets allow, all sequences advancing in the same passes."""
        start = time.perf_counter()
        chains = [_Chain(ask, self._depth(ask)) for ask in asks]
        active = [c for c in chains if c.depth > 0]
        feed = [self._catch_up(c.ask.seq, c.ask.tokens) for c in active]
        passes_of: dict[int, int] = {id(c): 0 for c in active}
        while active:
            rows = self._model.extend(
                [(c.ask.seq, new) for c, new in zip(active, feed, strict=True)]
            )
            for c, new, row in zip(active, feed, rows, strict=True):
                self._caches[c.ask.seq].held.extend(new)
                self._draw(c, row)
                passes_of[id(c)] += 1
            active = [c for c in active if len(c.tokens) < c.depth]
            feed = [c.tokens[-1:] for c in active]
        total = sum(passes_of.values())
        seconds = time.perf_counter() - start
        return [self._draft(c, seconds * passes_of.get(id(c), 0) / (total or 1)) for c in chains]

    def commit(self, news: Sequence[Committed]) -> None:
        """Drop what the target rejected from the cache; read a new prompt, as the target did."""
        for item in news:
            cache = self._caches.setdefault(item.seq, _Cache())
            if cache.of is item.known:
                self._cut(item.seq, cache, self._standing(cache, item))
            else:
                missing = self._catch_up(item.seq, item.known)
                if len(missing) > 1 and self._readable(missing):
                    self._model.extend([(item.seq, missing[:-1])])
                    cache.held.extend(missing[:-1])

    @staticmethod
    def _standing(cache: _Cache, item: Committed) -> int:
        """How many tokens of the cache are still those of the request."""
        stands = len(item.known) - len(item.tokens)
        end = min(len(item.known), len(cache.held))
        while stands < end and cache.held[stands] == item.known[stands]:
            stands += 1
        return stands

    def length(self, seq: int) -> int:
        """Tokens of the sequence in the draft model's KV cache."""
        cache = self._caches.get(seq)
        return len(cache.held) if cache else 0

    def close(self, seq: int) -> None:
        """Forget the sequence."""
        if self._caches.pop(seq, None) is not None:
            self._model.truncate(seq, 0)

    def _depth(self, ask: Ask) -> int:
        if not self._readable(self._catch_up(ask.seq, ask.tokens)):
            return 0
        # The last drafted token is never read by the draft model itself.
        return min(ask.budget.nodes, ask.budget.depth, self._model.capacity - len(ask.tokens) + 1)

    def _readable(self, tokens: Sequence[int]) -> bool:
        """Whether the draft model has all these ids; padded vocabularies differ in size."""
        return all(token < self._model.vocabulary for token in tokens)

    def _catch_up(self, seq: int, tokens: Sequence[int]) -> Sequence[int]:
        """Make the cache a proper prefix of the request's tokens; returns those missing."""
        cache = self._caches.setdefault(seq, _Cache())
        if cache.of is not tokens:
            self._cut(seq, cache, common_prefix(cache.held, tokens))
            cache.of = tokens
        self._cut(seq, cache, len(tokens) - 1)
        return tokens[len(cache.held) :]

    def _cut(self, seq: int, cache: _Cache, length: int) -> None:
        if length < len(cache.held):
            self._model.truncate(seq, length)
            del cache.held[length:]

    def _draw(self, chain: _Chain, row: Logits) -> None:
        ask = chain.ask
        lookback = ask.processor.lookback
        before = [*ask.tokens[-lookback:], *chain.tokens] if lookback else []
        q = ask.processor(row, before)
        position = ask.position + len(chain.tokens)
        if self._proposal is Proposal.COUPLED:
            token = ask.noise.draw(q, position, Stream.SAMPLE)
        else:
            token = ask.noise.draw(q, position, Stream.DRAFT, index=ask.position)
        chain.tokens.append(token)
        chain.probs.append(q)

    def _draft(self, chain: _Chain, seconds: float) -> Draft:
        if not chain.tokens:
            return no_draft(self.name, seconds)
        return Draft(
            tokens=np.array(chain.tokens, np.int32),
            parents=chain_parents(len(chain.tokens)),
            proposal=self._proposal,
            probs=tuple(chain.probs) if self._proposal is Proposal.SAMPLED else None,
            source=self.name,
            seconds=seconds,
        )


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens are equal."""
    n = min(len(a), len(b))
    if n == 0:
        return 0
    differ = np.flatnonzero(np.asarray(a[:n]) != np.asarray(b[:n]))
    return int(differ[0]) if len(differ) else n
