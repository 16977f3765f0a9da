"""Requests that share rounds on tables: what each of them wants, and how it may fail."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import tables
from ruled import Ruled

from faults.by_the_papers import Plain
from faults.settings import sampling
from localspec.core import kernel
from localspec.core.constraint import TokenMask
from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.noise import Noise
from localspec.core.values import Draft, Logits, Proposal, Tokens
from localspec.decode.logprobs import TokenScorer
from localspec.decode.request import Request
from localspec.decode.verifiers import VERIFIERS
from localspec.drafters.base import Drafter
from localspec.drafters.lookup.lookahead import Lookahead
from localspec.drafters.lookup.ngram import NGram
from localspec.drafters.lookup.suffix import Suffix
from localspec.drafters.model.chain import ChainDrafter
from localspec.llama.team import team
from localspec.policy import Policy
from localspec.testing import StopAt, Table, TableModel

LOOKUPS = {"ngram": NGram, "suffix": Suffix, "lookahead": Lookahead}
KINDS = ("chain", *LOOKUPS, *tables.SHAPES)
METHODS = ("mask", "take", "forced", "legal", "over", "expect")
DEFECTS = (*[None] * 21, "ban", "take", *METHODS)


@dataclass(frozen=True)
class Wish:
    """A request."""

    prompt: tuple[int, ...]
    seed: int
    sampling: Sampling
    verifier: str
    limit: int
    end: int | None
    rule: int | None
    """Seed of its grammar; None: it has none."""
    defect: str | None
    """The method of its grammar that fails, or "ban": every token is forbidden."""
    at: int
    """Tokens after which that fails."""
    rounds: int | None
    """Rounds after which it is interrupted."""
    scored: bool
    own: bool
    """Whether it has a policy of its own."""

    def plain(self, table: Table, v: int, capacity: int) -> Plain:
        """It, decoded by the papers."""
        rule = None if self.rule is None else Walk(self.rule, v)
        settings = (self.prompt, self.settings(v), self.seed, self.limit, self.end, capacity)
        return Plain(table, *settings, rule)

    def settings(self, v: int) -> Sampling:
        """Its sampling."""
        if self.defect != "ban":
            return self.sampling
        return Sampling(logit_bias=tuple((i, float("-inf")) for i in range(v)))

    def request(self, seq: int, v: int, policy: Policy | None) -> Request:
        """It, for the round."""
        constraint = None
        if self.rule is not None or self.defect in METHODS:
            constraint = Failing(self, v)
        return Request(
            seq,
            list(self.prompt),
            LogitsProcessor(self.settings(v), v, constraint),
            Noise(self.seed),
            self.limit,
            StopAt(self.end),
            VERIFIERS[self.verifier],
            policy,
            scorer=TokenScorer(0, "raw", str) if self.scored else None,
        )


def wish(rng: random.Random, v: int, seed: int) -> Wish:
    """Any request."""
    prompt = tuple(rng.randrange(v) for _ in range(rng.randint(2, 9)))
    return Wish(
        prompt=prompt,
        seed=seed,
        sampling=sampling(rng, range(v)),
        verifier=rng.choice(["match", "match", "match", "rejection"]),
        limit=rng.choice([1, 2, 7, 20, 45]),
        end=rng.choice([None, None, 0, 2]),
        rule=rng.choice([None, None, seed]),
        defect=rng.choice(DEFECTS),
        at=rng.choice([0, 1, 4, 9]),
        rounds=rng.choice([None, None, None, 1, 3, 8]),
        scored=rng.random() < 0.3,
        own=rng.random() < 0.3,
    )


class Walk:
    """A grammar: what may follow depends on the last token; some tokens force the next one, and
    some end the reply.
    """

    def __init__(self, seed: int, v: int) -> None:
        rng = random.Random(seed)
        sizes = [rng.choice([1, 1, 2, v // 2, v]) for _ in range(v + 1)]
        self._after = [frozenset(rng.sample(range(v), max(1, n))) for n in sizes]
        self._last = {token for token in range(v) if rng.random() < 0.05}

    def __call__(self, said: Sequence[int]) -> set[int]:
        """The tokens that may follow those of the reply."""
        if said and said[-1] in self._last:
            return set()
        return set(self._after[said[-1] if said else -1])


class Failing(Ruled):
    """A matcher of a grammar, one of whose methods may fail from some place on."""

    def __init__(self, wish: Wish, v: int) -> None:
        everything = set(range(v))
        rule = Walk(wish.rule, v) if wish.rule is not None else lambda _: everything
        super().__init__(rule, len(wish.prompt))
        self._wish = wish
        self._from = len(wish.prompt) + wish.at

    def _call(self, method: str, before: Sequence[int]) -> None:
        if method == self._wish.defect and len(before) >= self._from:
            raise ValueError("this matcher fails")

    def mask(self, before: Sequence[int]) -> TokenMask | None:
        self._call("mask", before)
        return super().mask(before)

    def forced(self, before: Sequence[int]) -> list[int]:
        self._call("forced", before)
        return super().forced(before)

    def legal(self, before: Sequence[int], tokens: Sequence[int]) -> int:
        self._call("legal", before)
        return super().legal(before, tokens)

    def over(self, before: Sequence[int]) -> bool:
        self._call("over", before)
        return super().over(before)

    def expect(self, before: Sequence[int], draft: Draft) -> None:
        self._call("expect", before)

    def take(self, before: Sequence[int]) -> bool:
        self._call("take", before)
        self.complete = super().over(before)
        return self.complete


class Shaped(tables.TreeDrafter):
    """Chains and trees of every proposal, for any sequence."""

    def __init__(self, shape: str, table: Table) -> None:
        pick, proposal = tables.SHAPES[shape]
        super().__init__(shape, table, pick, proposal, 4)


def drafter_of(kind: str, table: Table) -> Drafter:
    """A drafter of that kind."""
    if kind == "chain":
        return ChainDrafter(TableModel(table), Proposal.COUPLED)
    return LOOKUPS[kind]() if kind in LOOKUPS else Shaped(kind, table)


@contextlib.contextmanager
def rows_together(n: int) -> Iterator[None]:
    """Have the rows of a chain processed by so many threads at once (`LogitsProcessor.ahead`),
    where there is a compiled kernel, and llama.cpp computes with OpenMP.
    """
    compiled = kernel.loaded()
    if compiled is None or n == 1:
        yield
        return
    compiled.meet(team(n))
    try:
        yield
    finally:
        compiled.meet(None)


def spoilt(table: Table, where: tuple[int, int] | None) -> Table:
    """The table, without a number after two tokens."""

    def found(tokens: Tokens) -> Logits:
        row = table(tokens)
        return np.full_like(row, np.nan) if tuple(tokens[-2:]) == where else row

    return found
