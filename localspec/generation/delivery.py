"""The events of a round, on their way from the round to those who read them.

They are made and handed over while a device computes the next pass of the target. Whoever reads
them wants Python's lock as well, and would hold up the work between two passes. What somebody waits
for is not put off: the first tokens of a reply, and its end. Nor is anything where the processor
computes the passes, since it would have to wait for the end of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.core.events import Notice, ReplyEvent
from localspec.core.target import ServingTarget
from localspec.decode.round import RoundResult
from localspec.generation.generation import Generation


@dataclass(frozen=True, slots=True)
class Delivery:
    """A round of a reply whose events are still to be made."""

    generation: Generation
    result: RoundResult
    notices: Sequence[Notice]
    ended: float
    """When the round ended, by `time.perf_counter`."""
    alone: bool
    """Whether the round had no other request."""

    def events(self) -> list[ReplyEvent]:
        """The events, and the notices after them."""
        found = self.generation.events(self.result, ended=self.ended, alone=self.alone)
        return [*found, *self.notices]

    def hand_over(self) -> None:
        """Hand the events over. Where that fails, this reply has failed, and no other."""
        try:
            self.generation.job.mailbox.put(self.events())
        except Exception as error:  # noqa: BLE001 - raised to whoever reads the reply
            self.generation.defect = error


class Deliveries:
    """Hands over the events of replies that go on."""

    def __init__(self, target: ServingTarget) -> None:
        self._target = target
        self._late: list[Delivery] = []

    def after_round(self, round_: Sequence[Delivery]) -> None:
        """Hand over the events of a round, or have that done in the next pass."""
        for each in round_:
            if each.generation.request.tally.rounds == 1:
                each.hand_over()
            else:
                self._late.append(each)
        if self._late:
            self._target.meanwhile(self.complete)

    def put_off(self, last: Delivery) -> None:
        """Put off a reply's last round too: its events follow those before it."""
        self._late.append(last)

    def complete(self) -> None:
        """Hand over what was put off: before anything that ends a reply, or takes long."""
        late, self._late = self._late, []
        for each in late:
            each.hand_over()
