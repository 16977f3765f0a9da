"""How a draft model turns its q into a token, and which way is accepted most often.

For a match verifier there are two ways at temperature > 0: COUPLED draws with the target's own
noise, so that the two models agree more often than chance (Daliri et al. 2025); the argmax of q
(DETERMINISTIC) is accepted with probability p(argmax q), which is more where the draft is right
but unsure. Which is better depends on the text. Both can be evaluated on every verified token,
whichever was drafted, and the better one is used.

For rejection sampling q is drawn from and stored (SAMPLED). Any q is exact, so it may be sharpened:
q^s, normalised. Its acceptance is sum(min(p, q^s)), which can be computed for every s on every
verified token: the sharpness of highest acceptance is used.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from localspec.core import kernel
from localspec.core.constraint import TokenMask
from localspec.core.logits import Sampling
from localspec.core.noise import Stream
from localspec.core.values import Distribution, Logits, Probs, Proposal
from localspec.drafters.base import Ask, Committed

_DECAY = 0.98
_HEAD_START = 0.02
"""Lead in acceptance that argmax drafts need: near a tie, coupled drafts are the better choice."""

_SHARPNESS = np.array([1.0, 1.5, 2.5])
_SHARPER = 0.01
"""Lead in acceptance that a sharpness other than 1 needs."""
_HEAD = 8.0
"""Logits further below the best one than this are left out: exp of a whole row costs more than the
rest of the round, and the confidence is calibrated anyway."""


def confidence(q: Distribution, row: Logits, allowed: TokenMask | None = None) -> float:
    """The largest probability of q; for a greedy q, of the softmax of its row's head, without the
    tokens that are not ``allowed``.

    A function of q and the tokens before alone, so that stopping by it leaves rejection sampling
    exact.
    """
    if not q.certain:
        return float(q.probs[q.probs.argmax()])  # half the time of max()
    compiled = kernel.loaded()
    if allowed is None and compiled is not None:
        mass = compiled.head(row, _HEAD)
        if mass is not None:
            return 1.0 / mass
    top = row[int(q.ids[0])]
    if allowed is None:
        near = row[row >= top - _HEAD]
    else:
        ids = np.flatnonzero(row >= top - _HEAD).astype(np.int32)
        near = row[ids[allowed.allows(ids)]]
    return 1.0 / float(np.exp(near - top).sum())


class TokenChooser:
    """Draws drafted tokens, and learns which way of drawing is accepted most often."""

    def __init__(self, favoured: Proposal) -> None:
        """``favoured`` is COUPLED or SAMPLED; a request whose verifier is not exact for it gets
        what that favours.
        """
        if favoured not in {Proposal.COUPLED, Proposal.SAMPLED}:
            raise ValueError(f"a draft model does not propose {favoured.value} tokens")
        self._favoured = favoured
        self._coupled: dict[str, float] = {}
        self._argmax: dict[str, float] = {}
        """Decayed counts of tokens that would have been accepted, by kind of sampling."""
        self._verified: dict[str, float] = {}
        self._sampled: dict[str, float] = {}
        """Decayed counts of verified tokens by kind of sampling: ``_verified`` those behind
        ``_coupled`` and ``_argmax``, ``_sampled`` those behind ``_overlap``."""
        self._overlap: dict[str, Probs] = {}
        """Decayed sums of sum(min(p, q^s)), one for each sharpness."""
        self._sharpness: dict[str, float] = {}
        """The exponent with the highest acceptance, by kind of sampling."""

    def proposal(self, ask: Ask) -> Proposal:
        """How the next draft for this request is drawn."""
        favoured, kind = ask.proposal(self._favoured), ask.processor.sampling.kind
        verified = self._verified.get(kind, 0.0)
        if favoured is Proposal.COUPLED and verified > 0:
            ahead = (self._argmax[kind] - self._coupled[kind]) / verified
            if ahead * verified / (verified + 4) > _HEAD_START:
                return Proposal.DETERMINISTIC
        return favoured

    def draw(
        self, proposal: Proposal, q: Distribution, ask: Ask, position: int
    ) -> tuple[int, Distribution]:
        """A token for ``position`` and the distribution that it was really drawn from.

        SAMPLED noise is keyed by the round's first position too: a draw that an earlier round
        discarded must not influence a later one at the same place.
        """
        if proposal is Proposal.DETERMINISTIC:
            return _best(q), q
        if proposal is Proposal.COUPLED:
            return ask.noise.draw(q, position, Stream.SAMPLE), q
        q = sharpened(q, self.sharpness(ask.processor.sampling))
        return ask.noise.draw(q, position, Stream.DRAFT, index=ask.position), q

    def sharpness(self, sampling: Sampling) -> float:
        """The exponent of q for SAMPLED drafts under this sampling."""
        return self._sharpness.get(sampling.kind, 1.0)

    def likely(self, q: Distribution, ask: Ask, position: int) -> int:
        """The token that would have been drafted for ``position``.

        For SAMPLED a coupled draw takes its place: two independent draws agree far less often than
        rejection sampling accepts.
        """
        if self.proposal(ask) is Proposal.DETERMINISTIC:
            return _best(q)
        return ask.noise.draw(q, position, Stream.SAMPLE)

    def learn(
        self,
        ask: Ask,
        start: int,
        qs: Sequence[Distribution],
        drafted: Sequence[int],
        proposal: Proposal,
        committed: Committed,
    ) -> None:
        """Compare the ways of drawing on the verified tokens, the first one at ``start``.

        ``drafted`` are the tokens drawn from ``qs`` for ``proposal``.
        """
        kind = ask.processor.sampling.kind
        if kind == "greedy":  # one way only
            return
        if ask.proposal(self._favoured) is Proposal.SAMPLED:
            self._learn_sharpness(kind, qs, committed.p)
            return
        verified = self._verified.get(kind, 0.0)
        coupled, argmax = self._coupled.get(kind, 0.0), self._argmax.get(kind, 0.0)
        for i, (q, token) in enumerate(zip(qs, committed.new_tokens, strict=False)):
            drawn = best = drafted[i]  # by one of the two ways
            if proposal is Proposal.COUPLED:
                best = _best(q)
            else:
                drawn = ask.noise.draw(q, start + i, Stream.SAMPLE)
            verified = 1 + _DECAY * verified
            coupled = (drawn == token) + _DECAY * coupled
            argmax = (best == token) + _DECAY * argmax
            if drafted[i] != token:
                break
        self._verified[kind], self._coupled[kind], self._argmax[kind] = verified, coupled, argmax

    def _learn_sharpness(
        self, kind: str, qs: Sequence[Distribution], ps: Sequence[Distribution]
    ) -> None:
        verified = self._sampled.get(kind, 0.0)
        overlap = self._overlap.get(kind, np.zeros(len(_SHARPNESS)))
        for q, p in zip(qs, ps, strict=False):
            verified = 1 + _DECAY * verified
            overlap = overlaps(p, q, _SHARPNESS) + _DECAY * overlap
        self._sampled[kind], self._overlap[kind] = verified, overlap
        share = (overlap / (verified + 4)).tolist()
        best = share.index(max(share))
        ahead = share[best] - share[0] > _SHARPER
        self._sharpness[kind] = float(_SHARPNESS[best]) if ahead else 1.0


def sharpened(q: Distribution, exponent: float) -> Distribution:
    """q to a power, normalised."""
    if exponent == 1.0 or q.certain:
        return q
    probs = (q.probs / q.probs.max()) ** exponent
    keep = probs > 0.0  # a support has no zeros
    probs = probs[keep]
    return Distribution(q.ids[keep], probs / probs.sum())


def overlaps(p: Distribution, q: Distribution, exponents: Probs) -> Probs:
    """sum(min(p, q^s)), for each exponent s: the probability that a token drawn from that power of
    q is accepted.
    """
    compiled = kernel.loaded()
    found = None if compiled is None else compiled.overlaps(p, q, exponents)
    if found is not None:
        return found
    return _overlaps(p, q, exponents)


def _overlaps(p: Distribution, q: Distribution, exponents: Probs) -> Probs:
    """The reference."""
    i = np.minimum(np.searchsorted(q.ids, p.ids), len(q.ids) - 1)
    same = q.ids[i] == p.ids
    powers = (q.probs / q.probs.max()) ** exponents[:, None]
    powers /= powers.sum(axis=1, keepdims=True)
    found: Probs = np.minimum(p.probs[same], powers[:, i[same]]).sum(axis=1)
    return found


def _best(q: Distribution) -> int:
    return int(q.ids[q.probs.argmax()])
