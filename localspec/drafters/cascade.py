"""Several drafters in order of preference: the first that proposes anything is taken."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from localspec.drafters import Ask, Committed, Drafter
from localspec.values import Draft, no_draft


class Cascade:
    """Asks the first drafter, then the next one for those left without a draft."""

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        if not drafters:
            raise ValueError("a cascade needs at least one drafter")
        self._drafters = tuple(drafters)
        self.name = ",".join(d.name for d in self._drafters)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """One draft an ask, from the first drafter that has one."""
        drafts: list[Draft] = [no_draft(self.name) for _ in asks]
        open_asks = [i for i, ask in enumerate(asks) if ask.budget.nodes > 0]
        for drafter in self._drafters:
            if not open_asks:
                break
            proposed = drafter.propose([asks[i] for i in open_asks])
            for i, draft in zip(open_asks, proposed, strict=True):
                spent = drafts[i].seconds  # looking in vain costs too
                drafts[i] = dataclasses.replace(draft, seconds=draft.seconds + spent)
            open_asks = [i for i in open_asks if not len(drafts[i])]
        return drafts

    def commit(self, news: Sequence[Committed]) -> None:
        """Tell every drafter."""
        for drafter in self._drafters:
            drafter.commit(news)

    def length(self, seq: int) -> int:
        """The longest of its drafters' caches."""
        return max(d.length(seq) for d in self._drafters)

    def close(self, seq: int) -> None:
        """Forget the sequence."""
        for drafter in self._drafters:
            drafter.close(seq)
