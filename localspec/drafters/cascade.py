"""Several drafters in order of preference: the first that proposes anything is taken."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from localspec.core.plan import ANY, Evidence, Step
from localspec.core.values import Draft, Logits, no_draft
from localspec.drafters.base import Ask, Committed, Drafter, Fallible, Follows, Guesses


class Cascade:
    """Asks the first drafter, then the next one for those left without a draft."""

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        if not drafters:
            raise ValueError("a cascade needs at least one drafter")
        self._drafters = tuple(drafters)
        self.name = ",".join(d.name for d in self._drafters)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """One draft an ask, from the first drafter of its plan that has one."""
        drafts: list[Draft] = [no_draft(self.name) for _ in asks]
        for turn in range(max((len(ask.plan.steps) for ask in asks), default=0)):
            for drafter in self._drafters:
                here = [
                    i
                    for i, ask in enumerate(asks)
                    if not len(drafts[i])
                    and turn < len(ask.plan.steps)
                    and ask.plan.steps[turn].source in {drafter.name, ANY}
                ]
                if here:
                    told = [_ask(asks[i], asks[i].plan.steps[turn]) for i in here]
                    for i, draft in zip(here, drafter.propose(told), strict=True):
                        drafts[i] = draft
        return drafts

    def commit(self, news: Sequence[Committed]) -> list[Evidence]:
        """Tell every drafter."""
        return [found for drafter in self._drafters for found in drafter.commit(news)]

    def follow(self, seq: int, tokens: Sequence[int], upto: int) -> None:
        """Tell those that follow the target; see `Follows`."""
        for drafter in self._drafters:
            if isinstance(drafter, Follows):
                drafter.follow(seq, tokens, upto)

    @property
    def trouble(self) -> str | None:
        """Of the first drafter that has any; see `Fallible`."""
        troubles = (d.trouble for d in self._drafters if isinstance(d, Fallible))
        return next((trouble for trouble in troubles if trouble is not None), None)

    def logits(self, seq: int, tokens: Sequence[int]) -> Logits | None:
        """What the first drafter with an opinion makes of a place; see `Guesses`."""
        for drafter in self._drafters:
            if isinstance(drafter, Guesses):
                return drafter.logits(seq, tokens)
        return None

    def length(self, seq: int) -> int:
        """The longest of its drafters' caches."""
        return max(d.length(seq) for d in self._drafters)

    def close(self, seq: int) -> None:
        """Forget the sequence."""
        for drafter in self._drafters:
            drafter.close(seq)


def _ask(ask: Ask, step: Step) -> Ask:
    return dataclasses.replace(ask, budget=step.budget, pace=step.pace, look=step.look)
