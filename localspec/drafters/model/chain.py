"""Drafting with a second, smaller model of the same vocabulary."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from localspec.core.errors import NothingAllowedError, NotNumbersError
from localspec.core.plan import Evidence
from localspec.core.values import Draft, Logits, Proposal, TokenView
from localspec.drafters.base import Ask, Committed, Drafter, DraftState, compare
from localspec.drafters.model.cache import DraftCache
from localspec.drafters.model.drafted_chain import Chain
from localspec.drafters.model.interface import CANNOT, DraftModel
from localspec.drafters.model.proposal import TokenChooser, confidence

_PROBED = 16
"""Most tokens that a probe compares: rows of logits cost memory and time."""


class ChainDrafter(Drafter):
    """A chain from a draft model (Leviathan et al. 2023, algorithm 1, the loop over x_i ~ q).

    Read the missing tokens, compute q, ask the pace whether to continue, draw with `TokenChooser`,
    read the drawn token, and so on. Tokens that a grammar forces are read without a pass of their
    own.
    """

    reads_forced = True
    """Whether the model can read tokens that a grammar forces without proposing them itself."""

    def __init__(
        self,
        model: DraftModel,
        proposal: Proposal,
        name: str = "model",
        deepest: int | None = None,
    ) -> None:
        """``proposal`` is the one that the verifier favours: COUPLED or SAMPLED; ``deepest`` is
        the number of tokens that the model can draft, None for any.
        """
        self.name = name
        self.chooser = TokenChooser(proposal)
        self._cache = DraftCache(model)
        self._deepest = deepest
        self._chains: dict[int, Chain] = {}
        """Drafts to be compared with the tokens that the round emits."""
        self._probed: list[Evidence] = []
        self._problem: str | None = None

    @property
    def problem(self) -> str | None:
        """Why it has stopped drafting for good; None if it has not."""
        return self._problem

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """Chains as deep as budget and pace allow, all sequences advancing in the same passes."""
        start = time.perf_counter()
        chains = [
            Chain(
                ask,
                self._depth(ask),
                self.chooser.proposal(ask),
                ask.position,
                reads_forced=self.reads_forced,
            )
            for ask in asks
        ]
        active = [c for c in chains if c.depth > 0]
        feed = [[*self._cache.missing(c.ask.seq, c.ask.tokens), *c.take_forced()] for c in active]
        active, feed = self._with_room(active, feed)
        while active:
            work = [(c.ask.seq, new, 1) for c, new in zip(active, feed, strict=True)]
            try:
                rows = self._cache.extend(work)
            except CANNOT:
                break
            try:
                for c, row in zip(active, rows, strict=True):
                    self._draw(c, row[0])
            except NotNumbersError:
                self.give_up()
            if self.problem is not None:
                break
            active = [c for c in active if c.open and c.ask.pace.further(c.confidences)]
            feed = [[*c.tokens[-1:], *c.take_forced()] for c in active]
            active, feed = self._with_room(active, feed)
        for c in chains:
            self._chains[c.ask.seq] = c
            if c.ask.probe:
                before = self._cache.length(c.ask.seq)
                self._probe(c.ask)
                c.passes = int(self._cache.length(c.ask.seq) > before)
        seconds = time.perf_counter() - start
        each = seconds / max(1, sum(c.passes for c in chains))
        return [c.draft(self.name, each * c.passes) for c in chains]

    def commit(self, committed: Sequence[Committed]) -> list[Evidence]:
        """Drop rejected tokens from the cache; read a whole prompt, as the target did.

        Where the prompt of a request was not committed, nothing is read before the first ask.
        """
        evidence, self._probed = self._probed, []
        for item in committed:
            chain = self._chains.pop(item.seq, None)
            if self._cache.belongs_to(item.seq, item.all_tokens):
                self._cache.keep(item)
                if chain is not None and chain.ask.tokens is item.all_tokens:
                    evidence += self._compared(chain, item)
            elif len(item.new_tokens) == len(item.all_tokens):  # a prompt
                self._read_prompt(item.seq, item.all_tokens, len(item.all_tokens) - 1)
            else:  # the cache is of another request
                self._cache.missing(item.seq, item.all_tokens)
        return evidence

    def read_missed(self, seq: int, tokens: Sequence[int], upto: int) -> None:
        """See `Drafter.read_missed`."""
        self._read_prompt(seq, tokens, upto)

    def unread(self, seq: int, tokens: Sequence[int]) -> int:
        """See `Drafter.unread`."""
        return max(0, len(tokens) - 1 - self._cache.common(seq, tokens))

    def _read_prompt(self, seq: int, tokens: Sequence[int], upto: int) -> None:
        """Cache the first ``upto`` tokens of a prompt, if they can be read."""
        missing = self._cache.missing(seq, tokens)
        missing = missing[: max(0, len(missing) - (len(tokens) - upto))]
        if missing and self._cache.readable(missing):
            with contextlib.suppress(*CANNOT):
                self._cache.extend([(seq, missing, 0)])

    def logits(self, seq: int, tokens: Sequence[int]) -> Logits | None:
        """(V,) the draft model's logits after ``tokens``; None if it cannot read them."""
        if len(tokens) > self._cache.capacity:
            return None
        missing = self._cache.missing(seq, tokens)
        if not self._cache.readable(missing):
            return None
        try:
            (rows,) = self._cache.extend([(seq, missing, 1)])
        except CANNOT:
            return None
        row: Logits = rows[0].copy()
        return row

    def state(self, seq: int, tokens: Sequence[int]) -> Mapping[str, DraftState]:
        """The draft model's KV cache."""
        return self._cache.state(seq, tokens)

    def restore(self, seq: int, tokens: Sequence[int], states: Mapping[str, DraftState]) -> None:
        """Restore the draft model's KV cache, which would be read again otherwise."""
        self._cache.restore(seq, tokens, states)

    def length(self, seq: int) -> int:
        """Tokens of the sequence in the draft model's KV cache."""
        return self._cache.length(seq)

    def close(self, seq: int) -> None:
        """Forget the sequence."""
        self._chains.pop(seq, None)
        self._cache.close(seq)

    # -- drafting ------------------------------------------------------------------------------

    def give_up(self) -> None:
        """Stop drafting for good: the model computes NaN."""
        self._problem = (
            f"the {self.name} drafter computed values that are not numbers and was stopped; its "
            "file may be damaged: fetch it again"
        )

    def prepare(self, ask: Ask) -> bool:
        """Cache all tokens but the pending one, for a draft made by another class.

        False if that is impossible.
        """
        missing = self._cache.missing(ask.seq, ask.tokens)[:-1]
        if self.problem is not None or len(ask.tokens) > self._cache.capacity:
            return False
        if not self._cache.readable([*missing, ask.tokens[-1]]):
            return False
        if missing:
            try:
                self._cache.extend([(ask.seq, missing, 0)])
            except CANNOT:
                return False
        return True

    def _depth(self, ask: Ask) -> int:
        """Most tokens of a chain for ``ask``."""
        if self.problem is not None:
            return 0
        if not self._cache.readable(self._cache.missing(ask.seq, ask.tokens)):
            return 0
        # The last drafted token is never read by the draft model itself.
        room = self._cache.capacity - len(ask.tokens) + 1
        depth = min(ask.budget.nodes, ask.budget.depth, room)
        return depth if self._deepest is None else min(depth, self._deepest)

    def _with_room(
        self, chains: list[Chain], feed: list[list[int]]
    ) -> tuple[list[Chain], list[list[int]]]:
        """The chains that may still grow: forced tokens may have used up what there was room for,
        or be none of the model's.
        """
        if all(c.ask.processor.constraint is None for c in chains):
            return chains, feed
        both = [
            (c, new)
            for c, new in zip(chains, feed, strict=True)
            if not c.ask.over(c.tokens)
            and (
                len(c.places) == len(c.tokens)
                or (
                    len(c.tokens) < c.ask.room
                    and len(c.ask.tokens) + len(c.tokens) <= self._cache.capacity
                    and self._cache.readable(new)
                )
            )
        ]
        return [c for c, _ in both], [new for _, new in both]

    def _draw(self, chain: Chain, row: Logits) -> None:
        ask = chain.ask
        chain.passes += 1
        before = ask.before(chain.tokens)
        try:
            q = ask.processor(row, before)
        except NothingAllowedError:  # the target may have allowed tokens that this model lacks
            chain.depth = len(chain.confidences)
            return
        chain.confidences.append(confidence(q, row, ask.processor.allowed(before)))
        chain.places.append(len(chain.tokens))
        if not ask.pace.more(chain.confidences):
            chain.refused = q
            return
        token, drawn_from = self.chooser.draw(
            chain.proposal, q, ask, chain.start + len(chain.tokens)
        )
        chain.tokens.append(token)
        chain.q.append(q)
        chain.drawn_from.append(drawn_from)

    # -- evidence ------------------------------------------------------------------------------

    def _compared(self, chain: Chain, committed: Committed) -> list[Evidence]:
        """Evidence on the drafted tokens and on the refused one."""
        tokens = list(chain.tokens)
        if chain.refused is not None:
            at = chain.start + len(tokens)
            tokens.append(self.chooser.likely(chain.refused, chain.ask, at))
        own = set(chain.places)
        confidences: Sequence[float] = chain.confidences
        if len(own) < len(tokens):  # the grammar forced some
            committed = replace(
                committed, forced=committed.forced | (frozenset(range(len(tokens))) - own)
            )
            known = dict(zip(chain.places, chain.confidences, strict=True))
            confidences = [known.get(i, 1.0) for i in range(len(tokens))]
        found = compare(committed, self.name, tokens, confidences)
        self.chooser.learn(chain.ask, chain.start, chain.q, chain.tokens, chain.proposal, committed)
        return found

    def _probe(self, ask: Ask) -> None:
        """Read the missing tokens in one pass and compare own predictions with them."""
        missing = self._cache.missing(ask.seq, ask.tokens)[:-1][: ask.reads]
        if not missing or self.problem is not None or not self._cache.readable(missing):
            return
        rows = min(_PROBED, len(missing), len(ask.tokens) - ask.prompt)
        if rows < 1 or len(ask.tokens) > self._cache.capacity:
            return
        try:
            (logits,) = self._cache.extend([(ask.seq, missing, rows)])
        except CANNOT:
            return
        first = self._cache.length(ask.seq) - rows
        for i, row in enumerate(logits):
            if first + i + 1 < ask.prompt:  # what it says of the prompt is no evidence
                continue
            before = TokenView(ask.tokens, length=first + i + 1)
            try:
                q = ask.processor(row, before)
            except NotNumbersError:
                self.give_up()
                return
            except NothingAllowedError:
                return
            predicted = self.chooser.likely(q, ask, first + i + 1)
            accepted = predicted == ask.tokens[first + i + 1]
            allowed = ask.processor.allowed(before)
            if allowed is None or allowed.only is None:
                sure = confidence(q, row, allowed)
                self._probed.append(Evidence(ask.seq, self.name, sure, accepted))
