"""Several drafters in order of preference: the first that proposes anything is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from localspec.core.plan import Evidence
from localspec.core.values import Draft, Logits, no_draft
from localspec.drafters.base import Ask, Committed, Drafter, DraftState


class Cascade(Drafter):
    """Asks the first drafter, then the next one for requests still without a draft.

    The round addresses its `members` one by one, as the plan says.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        if not drafters:
            raise ValueError("a cascade needs at least one drafter")
        self._drafters = tuple(drafters)
        self.name = ",".join(d.name for d in self._drafters)

    @property
    def members(self) -> Sequence[Drafter]:
        """Its drafters."""
        return self._drafters

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """One draft for each ask, from the first drafter that has one."""
        drafts = [no_draft(self.name) for _ in asks]
        for drafter in self._drafters:
            left = [i for i, draft in enumerate(drafts) if not len(draft)]
            if left:
                for i, draft in zip(left, drafter.propose([asks[i] for i in left]), strict=True):
                    drafts[i] = draft
        return drafts

    def commit(self, committed: Sequence[Committed]) -> list[Evidence]:
        """Tell every drafter."""
        return [found for drafter in self._drafters for found in drafter.commit(committed)]

    def prompt_read(self, seq: int, tokens: Sequence[int], upto: int) -> None:
        """Tell every drafter."""
        for drafter in self._drafters:
            drafter.prompt_read(seq, tokens, upto)

    def read_missed(self, seq: int, tokens: Sequence[int], upto: int) -> None:
        """Tell every drafter."""
        for drafter in self._drafters:
            drafter.read_missed(seq, tokens, upto)

    def unread(self, seq: int, tokens: Sequence[int]) -> int:
        """The most that one of its drafters would read."""
        return max(d.unread(seq, tokens) for d in self._drafters)

    @property
    def problem(self) -> str | None:
        """The problem of the first drafter that has one."""
        problems = (drafter.problem for drafter in self._drafters)
        return next((problem for problem in problems if problem is not None), None)

    def logits(self, seq: int, tokens: Sequence[int]) -> Logits | None:
        """The logits of the first drafter that has any."""
        rows = (drafter.logits(seq, tokens) for drafter in self._drafters)
        return next((row for row in rows if row is not None), None)

    def length(self, seq: int) -> int:
        """The longest of its drafters' caches."""
        return max(d.length(seq) for d in self._drafters)

    def state(self, seq: int, tokens: Sequence[int]) -> Mapping[str, DraftState]:
        """The caches of its drafters."""
        states: dict[str, DraftState] = {}
        for drafter in self._drafters:
            states |= drafter.state(seq, tokens)
        return states

    def restore(self, seq: int, tokens: Sequence[int], states: Mapping[str, DraftState]) -> None:
        """Tell every drafter."""
        for drafter in self._drafters:
            drafter.restore(seq, tokens, states)

    def close(self, seq: int) -> None:
        """Forget the sequence."""
        for drafter in self._drafters:
            drafter.close(seq)

    def remember(self, owner: str, tokens: Sequence[int]) -> None:
        """Tell every drafter."""
        for drafter in self._drafters:
            drafter.remember(owner, tokens)

    def forget_requests(self) -> None:
        """Tell every drafter."""
        for drafter in self._drafters:
            drafter.forget_requests()
