"""Rejection sampling: exact in distribution, for every proposal whose q is known."""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from localspec.core.noise import Noise, Stream
from localspec.core.values import ROOT, Distribution, Draft, Proposal, TargetRows, Verdict, one_hot


class Rejection:
    """Accept x with probability min(1, p(x) / q(x)); at the first miss draw from the residual.

    Chains: Leviathan et al. 2023, "Fast inference from transformers via speculative decoding",
    section 2.3 and appendix A.1; Chen et al. 2023. Independent siblings: Miao et al. 2024,
    "SpecInfer", section 4.3. Siblings without replacement: Chen et al. 2024, "Sequoia", section
    3.2. Fixed siblings are one-hot q. The bonus token is drawn only where the walk ends at a leaf.
    """

    name = "rejection"
    proposals = frozenset({Proposal.DETERMINISTIC, Proposal.SAMPLED, Proposal.WITHOUT_REPLACEMENT})
    favours = Proposal.SAMPLED

    def __call__(
        self,
        draft: Draft,
        rows: TargetRows,
        noise: Noise,
        position: int,
        ends: Container[int] = (),
    ) -> Verdict:
        """Walk down, testing siblings in order against what is left of p."""
        node, verified = ROOT, 0
        path: list[int] = []
        below = draft.siblings()
        while True:
            here = position + len(path)
            siblings = below[1 + node]
            p = rows(node + 1)
            hit = None
            for order, child in enumerate(siblings):
                x = int(draft.tokens[child])
                q = _proposal_of(draft, siblings[:order], child)
                verified += 1
                if noise.uniform(here, order, Stream.ACCEPT) * q.probability(x) < p.probability(x):
                    hit = child
                    break
                p = residual(p, q)
            if hit is None:
                stream = Stream.RESIDUAL if siblings else Stream.SAMPLE
                return Verdict(tuple(path), noise.draw(p, here, stream), verified)
            path.append(hit)
            node = hit
            if x in ends:
                return Verdict(tuple(path), x, verified)


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
