"""Exact match: the target chooses without the draft; a drafted token equal to it is accepted."""

from __future__ import annotations

from collections.abc import Container

from localspec.core.noise import Noise, Stream
from localspec.core.values import ROOT, Draft, Proposal, TargetRows, Verdict


class Match:
    """Token for token what plain decoding gives, for equal logits.

    At each node the target draws y = argmax(log p + gumbel(position)), or argmax p at temperature
    0. The draw never looks at the draft, so it is the same with any draft or none. Stern et al.
    2018 ("Blockwise parallel decoding", greedy case); Daliri et al. 2025 for shared Gumbel noise.
    """

    name = "match"
    proposals = frozenset(Proposal)
    favours = Proposal.COUPLED

    def __call__(
        self,
        draft: Draft,
        rows: TargetRows,
        noise: Noise,
        position: int,
        ends: Container[int] = (),
    ) -> Verdict:
        """Walk down to the child that holds the target's choice, while there is one."""
        node, verified = ROOT, 0
        path: list[int] = []
        tokens, siblings = draft.tokens.tolist(), draft.siblings()
        while True:
            y = noise.draw(rows(node + 1), position + len(path), Stream.SAMPLE)
            hit = None
            for child in siblings[1 + node]:
                verified += 1
                if tokens[child] == y:
                    hit = child
                    break
            if hit is None:
                return Verdict(tuple(path), y, verified)
            path.append(hit)
            node = hit
            if y in ends:
                return Verdict(tuple(path), y, verified)
