"""Verification: which drafted tokens are accepted, and the target's own token after them; and how
far a token is from being chosen, in units of logits.

`Match` is exact: the target chooses without the draft, and a drafted token equal to it is accepted.
`Rejection` is exact in distribution, for every proposal whose q is known.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Container
from typing import Protocol

import numpy as np

from localspec.core.errors import ProposalError, UsageError
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise, Stream
from localspec.core.values import (
    ROOT,
    Distribution,
    Draft,
    Logits,
    Probs,
    Proposal,
    TargetRows,
    Verdict,
    one_hot,
)


class Verifier(Protocol):
    """Pure: no model, no clock, no global randomness."""

    @property
    def name(self) -> str:
        """Its name on the command line."""
        ...

    @property
    def proposals(self) -> frozenset[Proposal]:
        """The proposals it is exact for."""
        ...

    @property
    def reuses_noise(self) -> bool:
        """Whether it stays exact for drafts that depend on the noise that judges them, as the reply
        to an earlier request with the same seed does.
        """
        ...

    @property
    def favours(self) -> Proposal:
        """How a draft model should choose tokens for the highest acceptance."""
        ...

    def __call__(
        self,
        draft: Draft,
        rows: TargetRows,
        noise: Noise,
        position: int,
        ends: Container[int] = (),
    ) -> Verdict:
        """Judge ``draft``.

        ``rows(0)`` is the target's distribution after the pending token, ``rows(1 + i)`` after
        node i; ``position`` is that of the first token it may emit. Nothing follows an accepted
        token of ``ends``: the row after it is not asked for.
        """
        ...


class _Walk(abc.ABC):
    """Walks down a draft while one of the siblings at a place is accepted."""

    def __call__(
        self,
        draft: Draft,
        rows: TargetRows,
        noise: Noise,
        position: int,
        ends: Container[int] = (),
    ) -> Verdict:
        """See `Verifier`."""
        node, verified = ROOT, 0
        path: list[int] = []
        below = draft.siblings()
        while True:
            siblings = below[1 + node]
            here = position + len(path)
            hit, token = self._judge(draft, siblings, rows(node + 1), noise, here)
            if hit is None:
                return Verdict(tuple(path), token, verified + len(siblings))
            verified += 1 + siblings.index(hit)
            path.append(hit)
            node = hit
            if token in ends:
                return Verdict(tuple(path), token, verified)

    @abc.abstractmethod
    def _judge(
        self, draft: Draft, siblings: list[int], p: Distribution, noise: Noise, here: int
    ) -> tuple[int | None, int]:
        """The first of ``siblings`` that is accepted and its token; None and the target's own token
        where none is. ``p`` is the target's distribution for the position ``here``.
        """


class Match(_Walk):
    """Token for token what plain decoding gives, for equal logits.

    At each node the target draws y = argmax(log p + gumbel(position)), or argmax p at temperature
    0. The draw never looks at the draft, so it is the same with any draft or none. Stern et al.
    2018 ("Blockwise parallel decoding", greedy case); Daliri et al. 2025 for shared Gumbel noise.
    """

    name = "match"
    proposals = frozenset(Proposal)
    reuses_noise = True
    favours = Proposal.COUPLED

    def _judge(
        self, draft: Draft, siblings: list[int], p: Distribution, noise: Noise, here: int
    ) -> tuple[int | None, int]:
        y = noise.draw(p, here, Stream.SAMPLE)
        for child in siblings:
            if draft.tokens[child] == y:
                return child, y
        return None, y


class Rejection(_Walk):
    """Accept x with probability min(1, p(x) / q(x)); at the first miss draw from the residual.

    Chains: Leviathan et al. 2023, "Fast inference from transformers via speculative decoding",
    section 2.3 and appendix A.1; Chen et al. 2023. Independent siblings: Miao et al. 2024,
    "SpecInfer", section 4.3. Siblings without replacement: Chen et al. 2024, "Sequoia", section
    3.2. Fixed siblings are one-hot q. The bonus token is drawn only where the walk ends at a leaf.
    """

    name = "rejection"
    proposals = frozenset({Proposal.DETERMINISTIC, Proposal.SAMPLED, Proposal.WITHOUT_REPLACEMENT})
    reuses_noise = False
    favours = Proposal.SAMPLED

    def _judge(
        self, draft: Draft, siblings: list[int], p: Distribution, noise: Noise, here: int
    ) -> tuple[int | None, int]:
        """Test the siblings in order against what is left of p."""
        for order, child in enumerate(siblings):
            x = int(draft.tokens[child])
            q = _proposal_of(draft, siblings[:order], child)
            if noise.uniform(here, order, Stream.ACCEPT) * q.probability(x) < p.probability(x):
                return child, x
            p = residual(p, q)
        stream = Stream.RESIDUAL if siblings else Stream.SAMPLE
        return None, noise.draw(p, here, stream)


def residual(p: Distribution, q: Distribution) -> Distribution:
    """max(0, p - q), normalised (Leviathan et al. 2023, section 2.3).

    It is the *target's* probability less the *draft's*; where rounding leaves nothing, p and q
    are equal to the last bits and p itself is the limit.
    """
    i = np.minimum(np.searchsorted(q.ids, p.ids), len(q.ids) - 1)
    left = p.probs - np.where(q.ids[i] == p.ids, q.probs[i], 0.0)
    keep = left > 0.0
    if not keep.any():
        return p
    left = left[keep]
    return Distribution(p.ids[keep], left / left.sum())


def _proposal_of(draft: Draft, earlier: list[int], child: int) -> Distribution:
    """The q that ``child`` was drawn from, given that its ``earlier`` siblings were rejected."""
    if draft.probs is None:
        return one_hot(int(draft.tokens[child]))
    q = draft.probs[child]
    if draft.proposal is Proposal.WITHOUT_REPLACEMENT and earlier:
        keep = ~np.isin(q.ids, draft.tokens[earlier])
        left = q.probs[keep]
        return Distribution(q.ids[keep], left / left.sum())
    return q


VERIFIERS: dict[str, Verifier] = {v.name: v for v in (Match(), Rejection())}


def verifier(name: str) -> Verifier:
    """The verifier of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in VERIFIERS:
        raise UsageError(f"no verifier called {name!r}; there are: {', '.join(VERIFIERS)}")
    return VERIFIERS[name]


def require_exact(verifier: Verifier, draft: Draft) -> None:
    """Refuse a draft that the verifier would judge wrongly.

    Raises:
        ProposalError: names both.
    """
    if len(draft) and draft.proposal not in verifier.proposals:
        raise ProposalError(
            f"drafter {draft.source!r} proposes {draft.proposal.value} tokens, for which verifier "
            f"{verifier.name!r} is not exact; choose another drafter or verifier"
        )


class Choice:
    """The target's choice at one position under the verifier `match`, as a function of the row.

    ``before`` holds every token before the position, prompt included.
    """

    def __init__(self, before: list[int], processor: LogitsProcessor, noise: Noise) -> None:
        self._before, self._noise = before, noise
        self._processor = processor
        off = dataclasses.replace(
            processor.sampling,
            top_k=0,
            top_p=1.0,
            min_p=0.0,
            typical_p=1.0,
            top_n_sigma=0.0,
            xtc_probability=0.0,
        )
        self._whole = processor.warmed(off)
        self._greedy = processor.sampling.greedy

    def __call__(self, row: Logits) -> int:
        p = self._processor(row, self._before)
        return self._noise.draw(p, len(self._before), Stream.SAMPLE)

    def distance(self, row: Logits, token: int, go_on: Callable[[], None] = lambda: None) -> float:
        """The distance by which every logit must move for ``token`` to be chosen; 0 if it is.

        Two moves are tried, since the borders of top-k, top-p and min-p may have to let the token
        in or to shut its rivals out: all others down, or only those that score above it. Found to
        10 %; infinite above 16. All steps are gone through, since typical-p and XTC may shut a
        token out again that moves further; ``go_on`` is called before each, and may raise.
        """
        if self(row) == token:
            return 0.0
        scores = self._scores(row)
        alone = np.full(len(row), -1.0, np.float32)
        alone[token] = 1.0
        rivals = np.where(scores > scores[token], -1.0, 1.0).astype(np.float32)
        for step in np.geomspace(1e-6, 16.0, 175).astype(np.float32):
            go_on()
            if token in {self(row + step * alone), self(row + step * rivals)}:
                return float(step)
        return np.inf

    def _scores(self, row: Logits) -> Probs:
        """(V,) what the choice maximises, before top-k, top-p and min-p."""
        if self._greedy:
            return row.astype(np.float64)
        p = self._whole(row, self._before)
        scores = np.full(len(row), -np.inf)
        scores[p.ids] = np.log(p.probs) + self._noise.gumbel(
            len(self._before), p.ids, Stream.SAMPLE
        )
        return scores
