"""What our drafts cost the requests of a round that another policy plans for now."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.plan import RequestState
from localspec.policy.budgets import ReplyBudget


class Neighbours:
    """The accounts of requests that share our passes, from their first round that another policy
    plans.
    """

    def __init__(self) -> None:
        self._accounts: dict[int, tuple[int, ReplyBudget]] = {}
        """By sequence: tokens of its prompt, and the account of the request."""

    def of(self, states: Sequence[RequestState], rejected: float) -> list[ReplyBudget]:
        """Their accounts, where ``states`` are those of all requests of a round; ``rejected`` is
        what a rejected draft of one token loses there. An account goes on with its request, through
        rounds that we do not plan too.
        """
        accounts = [self.account(state) for state in states if state.other_policy]
        for account in accounts:
            account.rejected = rejected
        return accounts

    def settle(self, seq: int, gain: float, company: float, answers: float = 0.0) -> None:
        """A neighbour has won so many tokens by our drafts, or lost; see `ReplyBudget.settle`."""
        if seq in self._accounts:
            self._accounts[seq][1].settle(0, gain, company, answers=answers)

    def account(self, state: RequestState) -> ReplyBudget:
        """The account of a request, which goes on where we plan for it from now on."""
        prompt = state.length - state.emitted
        known, account = self._accounts.get(state.seq, (prompt, ReplyBudget()))
        another = known != prompt or not state.emitted or state.emitted < account.emitted
        if another:  # the sequence is another request's now
            account = ReplyBudget()
        self._accounts[state.seq] = prompt, account
        account.emitted = state.emitted
        return account
