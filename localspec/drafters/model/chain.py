"""Drafting with a second, smaller model of the same vocabulary."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from localspec.core.plan import Evidence
from localspec.core.values import Distribution, Draft, Logits, Proposal, chain_parents, no_draft
from localspec.drafters.base import Ask, Committed, judge
from localspec.drafters.model.cache import DraftCache
from localspec.drafters.model.interface import CANNOT, DraftModel
from localspec.drafters.model.proposal import TokenChooser, confidence
from localspec.errors import NothingAllowedError, NotNumbersError

_LOOK_AT = 16
"""Tokens that a look compares at most: rows of logits cost memory and time."""


@dataclass(slots=True)
class Chain:
    """A draft in the making."""

    ask: Ask
    depth: int
    proposal: Proposal
    start: int
    """Position of its first token; the request's list will have grown when it is judged."""
    tokens: list[int] = field(default_factory=list)
    q: list[Distribution] = field(default_factory=list)
    """The draft model's own, one a token."""
    drawn_from: list[Distribution] = field(default_factory=list)
    """What each token was really drawn from."""
    confidences: list[float] = field(default_factory=list)
    """One a token, and one more where a look at q decided against another token."""
    refused: Distribution | None = None
    """The q of that one."""
    passes: int = 0

    @property
    def open(self) -> bool:
        return self.refused is None and len(self.tokens) < self.depth


class ChainDrafter:
    """A chain from a draft model (Leviathan et al. 2023, algorithm 1, the loop over x_i ~ q).

    Between the draws of `TokenChooser` and the pace of the policy it is just that loop: read
    what is missing, look at q, decide whether to go on, draw, read the drawn token.
    """

    def __init__(self, model: DraftModel, proposal: Proposal, name: str = "model") -> None:
        """``proposal`` is what the verifier favours: COUPLED or SAMPLED."""
        self.name = name
        self._books = DraftCache(model)
        self.chooser = TokenChooser(proposal)
        self._chains: dict[int, Chain] = {}
        """Drafts that wait for their verdict."""
        self._looked: list[Evidence] = []
        self.trouble: str | None = None
        """Why it drafts no more; see `Fallible`."""

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """Chains as deep as budget and pace allow, all sequences advancing in the same passes."""
        start = time.perf_counter()
        chains = [
            Chain(
                ask,
                self._depth(ask),
                self.chooser.proposal(ask.processor.sampling),
                ask.position,
            )
            for ask in asks
        ]
        active = [c for c in chains if c.depth > 0]
        feed = [self._books.missing(c.ask.seq, c.ask.tokens) for c in active]
        while active:
            work = [(c.ask.seq, new, 1) for c, new in zip(active, feed, strict=True)]
            try:
                rows = self._books.extend(work)
            except CANNOT:
                break
            try:
                for c, row in zip(active, rows, strict=True):
                    self._draw(c, row[0])
            except NotNumbersError:
                self.give_up()
            if self.trouble is not None:
                break
            active = [c for c in active if c.open and c.ask.pace.further(c.confidences)]
            feed = [c.tokens[-1:] for c in active]
        for c in chains:
            self._chains[c.ask.seq] = c
            if c.ask.look:
                self._look(c.ask)
        seconds = time.perf_counter() - start
        each = seconds / max(1, sum(c.passes for c in chains))
        return [self._draft(c, each * max(c.passes, int(c.ask.look))) for c in chains]

    def commit(self, news: Sequence[Committed]) -> list[Evidence]:
        """Drop what the target rejected from the cache; read a whole prompt, as the target did.

        Of a request whose prompt was not announced nothing is read before a draft is asked for.
        """
        evidence, self._looked = self._looked, []
        for item in news:
            chain = self._chains.pop(item.seq, None)
            if self._books.follows(item.seq, item.known):
                self._books.keep(item)
                if chain is not None:
                    evidence += self._judged(chain, item)
            elif len(item.tokens) == len(item.known):  # a prompt
                self._announced(item.seq, item.known, len(item.known) - 1)
            else:  # another request than the cache is of
                self._books.missing(item.seq, item.known)
        return evidence

    def _announced(self, seq: int, tokens: Sequence[int], upto: int) -> None:
        """Have the first ``upto`` tokens of a prompt in the cache, if they can be read."""
        missing = self._books.missing(seq, tokens)
        missing = missing[: max(0, len(missing) - (len(tokens) - upto))]
        if missing and self._books.readable(missing):
            with contextlib.suppress(*CANNOT):
                self._books.extend([(seq, missing, 0)])

    def logits(self, seq: int, tokens: Sequence[int]) -> Logits | None:
        """(V,) what follows ``tokens`` by the draft model; see `Guesses`."""
        if len(tokens) > self._books.capacity:
            return None
        missing = self._books.missing(seq, tokens)
        if not self._books.readable(missing):
            return None
        try:
            (rows,) = self._books.extend([(seq, missing, 1)])
        except CANNOT:
            return None
        row: Logits = rows[0].copy()
        return row

    def length(self, seq: int) -> int:
        """Tokens of the sequence in the draft model's KV cache."""
        return self._books.length(seq)

    def close(self, seq: int) -> None:
        """Forget the sequence."""
        self._chains.pop(seq, None)
        self._books.close(seq)

    # -- drafting ------------------------------------------------------------------------------

    def give_up(self) -> None:
        """Draft no more."""
        self.trouble = (
            f"the {self.name} drafter computed what is no number and drafts no more; its file may "
            "be damaged: fetch it again"
        )

    def read(self, ask: Ask) -> bool:
        """Have all tokens but the pending one in the cache, for a draft that is made elsewhere.

        False if that cannot be.
        """
        missing = self._books.missing(ask.seq, ask.tokens)[:-1]
        if self.trouble is not None or len(ask.tokens) > self._books.capacity:
            return False
        if not self._books.readable([*missing, ask.tokens[-1]]):
            return False
        if missing:
            try:
                self._books.extend([(ask.seq, missing, 0)])
            except CANNOT:
                return False
        return True

    def _depth(self, ask: Ask) -> int:
        if self.trouble is not None:
            return 0
        if not self._books.readable(self._books.missing(ask.seq, ask.tokens)):
            return 0
        # The last drafted token is never read by the draft model itself.
        return min(ask.budget.nodes, ask.budget.depth, self._books.capacity - len(ask.tokens) + 1)

    def _draw(self, chain: Chain, row: Logits) -> None:
        ask = chain.ask
        chain.passes += 1
        lookback = ask.processor.lookback
        before = [*ask.tokens[-lookback:], *chain.tokens] if lookback else []
        try:
            q = ask.processor(row, before)
        except (
            NothingAllowedError
        ):  # of what this model can draft; the target may know other tokens
            chain.depth = len(chain.tokens)
            return
        chain.confidences.append(confidence(q, row))
        if not ask.pace.more(chain.confidences):
            chain.refused = q
            return
        token, drawn_from = self.chooser.draw(
            chain.proposal, q, ask, chain.start + len(chain.tokens)
        )
        chain.tokens.append(token)
        chain.q.append(q)
        chain.drawn_from.append(drawn_from)

    def _draft(self, chain: Chain, seconds: float) -> Draft:
        if not chain.tokens:
            return no_draft(self.name, seconds, len(chain.confidences))
        return Draft(
            tokens=np.array(chain.tokens, np.int32),
            parents=chain_parents(len(chain.tokens)),
            proposal=chain.proposal,
            probs=tuple(chain.drawn_from) if chain.proposal is Proposal.SAMPLED else None,
            source=self.name,
            seconds=seconds,
            considered=len(chain.confidences),
        )

    # -- judging oneself -----------------------------------------------------------------------

    def _judged(self, chain: Chain, news: Committed) -> list[Evidence]:
        """How the draft did, and how the token would have done that was decided against."""
        tokens = list(chain.tokens)
        if chain.refused is not None:
            at = chain.start + len(tokens)
            tokens.append(self.chooser.likely(chain.refused, chain.ask, at))
        found = judge(news, self.name, tokens, chain.confidences)
        self.chooser.learn(chain.ask, chain.start, chain.q, chain.tokens, news)
        return found

    def _look(self, ask: Ask) -> None:
        """Read what is missing in one pass and compare own choices with what was said."""
        missing = self._books.missing(ask.seq, ask.tokens)[:-1]
        if not missing or self.trouble is not None or not self._books.readable(missing):
            return
        rows = min(_LOOK_AT, len(missing), len(ask.tokens) - ask.prompt)
        if rows < 1 or len(ask.tokens) > self._books.capacity:
            return
        try:
            (logits,) = self._books.extend([(ask.seq, missing, rows)])
        except CANNOT:
            return
        first = self._books.length(ask.seq) - rows
        lookback = ask.processor.lookback
        for i, row in enumerate(logits):
            known = ask.tokens[: first + i + 1]
            try:
                q = ask.processor(row, known[-lookback:] if lookback else [])
            except NotNumbersError:
                self.give_up()
                return
            except NothingAllowedError:
                return
            guess = self.chooser.likely(q, ask, first + i + 1)
            stood = guess == ask.tokens[first + i + 1]
            self._looked.append(Evidence(ask.seq, self.name, 0, confidence(q, row), stood))
