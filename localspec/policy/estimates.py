"""Acceptance by drafter and kind of sampling, and within that by running text."""

from __future__ import annotations

from collections.abc import Collection

from localspec.core.plan import Evidence
from localspec.policy.acceptance import AcceptanceEstimate, AcceptanceTuning
from localspec.policy.ledger import Key


class Estimates:
    """The estimates of all drafters.

    What describes a drafter is shared by all texts and saved; what describes a text belongs to the
    sequence of the request, so requests that run at once do not disturb each other.
    """

    def __init__(
        self,
        saved: dict[Key, AcceptanceEstimate],
        computed: AcceptanceTuning,
        copied: AcceptanceTuning,
        free: Collection[str],
    ) -> None:
        """``saved`` is updated; ``free`` are the drafters that copy from the text."""
        self._saved = saved
        self._computed, self._copied, self._free = computed, copied, free
        self._texts: dict[tuple[int, str], AcceptanceEstimate] = {}
        self._kinds: dict[int, str] = {}

    def new_text(self, seq: int, kind: str, sources: Collection[str]) -> None:
        """A request starts in the sequence, with this kind of sampling."""
        self._kinds[seq] = kind
        for source in sources:
            text = self.drafter((source, kind)).new_text()
            self._texts[seq, source] = self._saved[source, kind] = text

    def text(self, seq: int, source: str) -> AcceptanceEstimate:
        """The drafter's acceptance in the running text of the sequence."""
        return self._texts[seq, source]

    def kind(self, seq: int) -> str:
        """The kind of sampling in the sequence."""
        return self._kinds.get(seq, "")

    def drafter(self, key: Key) -> AcceptanceEstimate:
        """The drafter's acceptance under a kind of sampling, over all texts."""
        tuning = self._copied if key[0] in self._free else self._computed
        estimate = self._saved.setdefault(key, AcceptanceEstimate(tuning=tuning))
        estimate.tuning = tuning
        return estimate

    def learn(self, e: Evidence) -> None:
        """A prediction was compared with the token emitted."""
        text = self._texts.get((e.seq, e.source))
        if text is not None:
            text.learn(e.index, e.confidence, e.accepted)


__all__ = ["Estimates"]
