"""The ledger of one reply: what speculation has won and lost, and what it may lose next.

Estimates are wrong when texts change, and a reply may end at any token. So a draft is no longer
than the reply can afford if all of it were rejected: it may lose what drafting has won in this
reply, a small share of the tokens emitted so far, and the credit that its drafter has earned by
predictions that were right. A drafter of which nothing is known has no credit; it earns some from
tokens that it predicted and that were not drafted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

Key = tuple[str, str]
"""(Drafter, kind of sampling)."""


@dataclass(frozen=True, slots=True)
class LedgerTuning:
    """Constants of `Ledger`, in plain tokens."""

    start: float = 0.15
    """Tokens that a reply may lose from its first one on."""
    share: float = 0.02
    """Further tokens that it may lose, as a share of its tokens so far."""
    bearable: float = 0.03
    """Tokens that a reply may have lost at its end, as a share of all."""
    most: float = 8.0
    """Largest balance: gains of long ago are not risked."""
    credit: float = 0.3
    """Credit that a right prediction which was not drafted earns."""
    debit: float = 0.5
    """Credit that a wrong one costs."""
    most_credit: float = 2.2
    """Largest credit."""
    better: float = 0.3
    """Credit for the next reply that a reply earns which its drafts made faster."""
    worse: float = 1.0
    """Credit for the next reply that a slower one costs."""
    clear: float = 0.02
    """Gain or loss, as a share of a reply's tokens, from which it counts as either."""


class Ledger:
    """The books of one reply, in plain tokens."""

    def __init__(self, tuning: LedgerTuning = LedgerTuning()) -> None:
        self._tuning = tuning
        self._balance = tuning.start
        self._credit: dict[str, float] = {}
        self._guesses: dict[str, tuple[int, int]] = {}
        self.emitted = 0
        """Tokens of the reply so far."""
        self.drafters: set[str] = set()
        """Drafters that drafted in the reply."""
        self.won_by: dict[str, float] = {}
        """Tokens won less those lost, by drafter; the sum is `won`."""
        self.read: set[str] = set()
        """Drafters that had read the prompt."""
        self.requests = 1
        """Requests that ran at once when it began."""
        self.won = 0.0
        """Tokens won on plain decoding in the whole reply, less those lost."""

    @property
    def slack(self) -> float:
        """Tokens that the reply can lose now and still be nearly as fast as plain decoding."""
        return self._balance

    def bearable(self, total: float) -> float:
        """The same for a reply of which ``total`` tokens are expected in all."""
        return self._tuning.bearable * total + self.won

    def allowed(self, source: str) -> float:
        """Tokens that the drafter may lose in the next round."""
        return self._balance + self._credit.get(source, 0.0)

    def grant(self, source: str, credit: float) -> None:
        """Credit from earlier replies."""
        self._credit[source] = min(credit, self._tuning.most_credit)

    def settle(self, emitted: int, gain: float, source: str = "") -> None:
        """A round emitted tokens, with this gain on plain decoding by that drafter."""
        self.emitted += emitted
        self.won_by[source] = self.won_by.get(source, 0.0) + gain
        self.won += gain
        gained = gain + self._tuning.share * emitted
        self._balance = min(self._tuning.most, self._balance + gained)

    def predicted(self, source: str, right: bool, *, drafted: bool = False) -> None:
        """A prediction of the drafter was compared with the token emitted. Only those that were not
        drafted earn credit: the others are settled with their round.
        """
        before, judged = self._guesses.get(source, (0, 0))
        self._guesses[source] = before + right, judged + 1
        if drafted:
            return
        change = self._tuning.credit if right else -self._tuning.debit
        credit = self._credit.get(source, 0.0) + change
        self._credit[source] = max(0.0, min(self._tuning.most_credit, credit))

    def guesses(self, source: str) -> tuple[int, int]:
        """(Predictions of the drafter that were right, predictions in all), in this reply."""
        return self._guesses.get(source, (0, 0))


class Credits:
    """The credit that drafters start replies with: earned by replies that they made faster."""

    def __init__(self, tuning: LedgerTuning = LedgerTuning()) -> None:
        self._tuning = tuning
        self._credits: dict[Key, float] = {}

    def open(self, kind: str, sources: Collection[str]) -> Ledger:
        """The ledger of a new reply."""
        ledger = Ledger(self._tuning)
        for source in sources:
            ledger.grant(source, self._credits.get((source, kind), 0.0))
        return ledger

    def close(self, ledger: Ledger, kind: str, drafters: Collection[str]) -> None:
        """The reply has ended; ``drafters`` drafted in it."""
        tuning = self._tuning
        share = ledger.won / max(1, ledger.emitted)
        if abs(share) < tuning.clear:
            return
        change = tuning.better if share > 0 else -tuning.worse
        for source in drafters:
            credit = self._credits.get((source, kind), 0.0) + change
            self._credits[source, kind] = max(0.0, min(tuning.most_credit, credit))


__all__ = ["Credits", "Key", "Ledger", "LedgerTuning"]
