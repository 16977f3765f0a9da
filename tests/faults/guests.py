"""Requests that share rounds on tables: what each of them wants, and how it may fail."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tables
from ruled import Ruled

from faults.by_the_papers import Plain
from faults.samplers_by_the_papers import Infill
from faults.settings import further, sampling
from faults.texts_by_hand import Texts
from localspec.core import kernel
from localspec.core.constraint import TokenMask
from localspec.core.emitted import LogprobsMode
from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.noise import Noise
from localspec.core.values import Draft, Logits, Proposal, Tokens
from localspec.decode.logprobs import TokenScorer
from localspec.decode.request import DraftRules, Request
from localspec.decode.verifiers import VERIFIERS
from localspec.drafters.base import Drafter
from localspec.drafters.lookup.lookahead import Lookahead
from localspec.drafters.lookup.ngram import NGram
from localspec.drafters.lookup.predicted_text import PredictedText
from localspec.drafters.lookup.prediction import PredictionDrafter
from localspec.drafters.lookup.suffix import Suffix
from localspec.drafters.model.chain import ChainDrafter
from localspec.generation.infill_sampling import InfillProcessor
from localspec.generation.stop_condition import LineLimits, StopCondition
from localspec.llama.team import team
from localspec.policy import Policy
from localspec.testing import Table, TableModel

LOOKUPS = {"ngram": NGram, "suffix": Suffix, "lookahead": Lookahead}
KINDS = ("chain", *LOOKUPS, "recalling", "prediction", *tables.SHAPES)
METHODS = ("mask", "take", "forced", "legal", "over", "expect")
DEFECTS = (*[None] * 21, "ban", "take", *METHODS)


_PIECES = (
    b"a",
    b"b",
    b"ab",
    b"\n",
    b" ",
    b"\n  ",
    b"\xc3",
    b"\xa9",
    b"\xe2\x82",
    b"\xac",
    b"",
    b"xyz",
)
"""Texts of tokens; some are parts of a character."""


@dataclass(frozen=True)
class Extras:
    """What few requests ask for."""

    stops: tuple[str, ...] = ()
    indent: int = 0
    """Spaces that each further line must begin with."""
    scored: str | None = None
    """The mode of its log-probabilities; None: it has none."""
    alternatives: int = 0
    breakers: Mapping[int, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    """Of DRY's repetitions."""
    infill: bool = False
    """Whether its logits go through the sampler infill."""
    most: int | None = None
    """Most tokens of a draft."""
    predicts: float | None = None
    """Share of its reply that its prediction has right; None: it has no prediction."""
    recalls: str | None = None
    """Owner from whose earlier requests may be drafted."""
    guided: bool = True


USUAL = Extras()


@dataclass(frozen=True)
class Wish:
    """A request."""

    prompt: tuple[int, ...]
    seed: int
    sampling: Sampling
    verifier: str
    limit: int
    ends: frozenset[int]
    rule: int | None
    """Seed of its grammar; None: it has none."""
    defect: str | None
    """The method of its grammar that fails, or "ban": every token is forbidden."""
    at: int
    """Tokens after which that fails."""
    rounds: int | None
    """Rounds after which it is interrupted."""
    own: bool
    """Whether it has a policy of its own."""
    extras: Extras = USUAL

    def plain(self, table: Table, v: int, capacity: int) -> Plain:
        """It, decoded by the papers."""
        extras, pieces = self.extras, pieces_of(v)
        return Plain(
            table,
            self.prompt,
            self.settings(v),
            self.seed,
            self.limit,
            self.ends,
            capacity,
            None if self.rule is None else Walk(self.rule, v),
            Texts(pieces, extras.stops, extras.indent),
            extras.breakers,
            Infill(pieces, self.ends, min(self.ends)) if extras.infill else None,
        )

    def settings(self, v: int) -> Sampling:
        """Its sampling."""
        if self.defect != "ban":
            return self.sampling
        return Sampling(logit_bias=tuple((i, float("-inf")) for i in range(v)))

    def request(
        self, seq: int, v: int, policy: Policy | None, expected: Sequence[int] = ()
    ) -> Request:
        """It, for the round; ``expected`` is its prediction."""
        constraint, extras, noise = None, self.extras, Noise(self.seed)
        if self.rule is not None or self.defect in METHODS:
            constraint = Failing(self, v)
        model: Any = Pieces(v, self.ends)
        processor = LogitsProcessor(
            self.settings(v), v, constraint, noise=noise, breakers=extras.breakers
        )
        if extras.infill:
            processor = InfillProcessor(processor, model.piece, self.ends, min(self.ends))
        prediction = PredictedText(expected, len(self.prompt)) if expected else None
        return Request(
            seq,
            list(self.prompt),
            processor,
            noise,
            self.limit,
            StopCondition(model, extras.stops, frozenset(), LineLimits(extras.indent)),
            VERIFIERS[self.verifier],
            policy,
            guided=extras.guided,
            scorer=self._scorer(),
            drafting=DraftRules(None, extras.most, prediction, extras.recalls),
        )

    def _scorer(self) -> TokenScorer | None:
        if self.extras.scored is None:
            return None
        mode: LogprobsMode = "raw" if self.extras.scored == "raw" else "processed"
        return TokenScorer(self.extras.alternatives, mode, str)

    def predicted(self, right: Sequence[int], v: int) -> list[int]:
        """Its prediction, where its reply will be ``right``."""
        rng, share = random.Random(self.seed), self.extras.predicts
        if share is None:
            return []
        return [t if rng.random() < share else rng.randrange(v) for t in right] or [0]


def wish(rng: random.Random, v: int, seed: int) -> Wish:
    """Any request."""
    prompt = tuple(rng.randrange(v) for _ in range(rng.randint(2, 9)))
    usual = sampling(rng, range(v))
    ruled, ends = rng.random() < 1 / 3, rng.choice([(), (), (0,), (2,), (1, 2)])
    return Wish(
        prompt=prompt,
        seed=seed,
        sampling=further(rng, usual) if rng.random() < 0.4 else usual,
        verifier=rng.choice(["match", "match", "match", "rejection"]),
        limit=rng.choice([1, 2, 7, 20, 45]),
        ends=frozenset(ends),
        rule=seed if ruled else None,
        defect=rng.choice(DEFECTS),
        at=rng.choice([0, 1, 4, 9]),
        rounds=rng.choice([None, None, None, 1, 3, 8]),
        own=rng.random() < 0.3,
        extras=_extras(rng, v, infills=not ruled and bool(ends)),
    )


def _extras(rng: random.Random, v: int, *, infills: bool) -> Extras:
    texts = ["".join(rng.choices("ab\n xé€", k=rng.randint(1, 3))) for _ in range(3)]
    return Extras(
        stops=tuple(texts[: rng.choice([0, 0, 1, 3])]),
        indent=rng.choice([0, 0, 0, 2]),
        scored=rng.choice([None, None, "raw", "processed"]),
        alternatives=rng.choice([0, 1, 5]),
        breakers={token: breaker(rng, v) for token in rng.sample(range(v), rng.choice([0, 1, 2]))},
        infill=infills and rng.random() < 0.5,
        most=rng.choice([None, None, 1, 3]),
        predicts=rng.choice([None, 0.8]),
        recalls=rng.choice([None, "one", "another"]),
        guided=rng.random() < 0.8,
    )


def breaker(rng: random.Random, v: int) -> tuple[tuple[int, ...], ...]:
    """What has to follow a token that ends DRY's repetitions."""
    return (tuple(rng.choices(range(v), k=rng.choice([0, 0, 1, 2]))),)


@functools.cache
def pieces_of(v: int) -> tuple[bytes, ...]:
    """The texts of a vocabulary."""
    rng = random.Random(v)
    return tuple(rng.choice(_PIECES) for _ in range(v))


class Pieces:
    """What a stop condition asks a model."""

    def __init__(self, v: int, ends: frozenset[int]) -> None:
        self._pieces, self.end_ids = pieces_of(v), ends

    def piece(self, token: int) -> bytes:
        """Its bytes."""
        return self._pieces[token]


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


class Recalling(Suffix):
    """A suffix drafter that remembers requests."""

    name = "recalling"


def drafter_of(kind: str, table: Table) -> Drafter:
    """A drafter of that kind."""
    if kind == "recalling":
        return Recalling(memory=1 << 16)
    if kind == "prediction":
        return PredictionDrafter()
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
