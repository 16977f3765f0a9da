"""The state that the parts of the controller share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from localspec.core.branching import Branching
from localspec.policy.costs import Costs
from localspec.policy.estimates import Estimates
from localspec.policy.ledger import Credits, Ledger
from localspec.policy.outlooks import Outlooks, PriceList
from localspec.policy.pass_costs import PassCosts
from localspec.policy.probes import ProbeSchedule
from localspec.policy.reply_lengths import ReplyLengths
from localspec.policy.sharing import Sharing
from localspec.policy.storage import Knowledge
from localspec.policy.trees import Trees
from localspec.policy.tuning import ControllerTuning
from localspec.policy.winnings import Winnings


@dataclass(frozen=True, slots=True)
class Planned:
    """The round that was planned last."""

    number: int = 0
    requests: int = 1
    lengths: Mapping[int, int] = field(default_factory=dict)
    """Tokens by sequence."""
    unread: Mapping[int, int] = field(default_factory=dict)
    """Tokens by sequence that drafters had not read."""


class Parts:
    """The measurements, estimates and ledgers of one controller, shared by its parts."""

    def __init__(
        self,
        knowledge: Knowledge,
        sources: Sequence[str],
        free: Collection[str],
        branching: Mapping[str, Branching],
        k_max: int,
        pads: bool,
        read_shares: Mapping[str, float],
        tuning: ControllerTuning,
    ) -> None:
        """See `localspec.policy.controller.Controller`."""
        self.sources, self.free = tuple(sources), frozenset(free)
        self.tuning = tuning
        self.read_shares = dict(read_shares)
        self.passes = PassCosts(knowledge.costs, k_max, tuning.curve_every, pads=pads)
        self.prices = PriceList()
        self.trees = Trees(branching, tuning.trees)
        self.estimates = Estimates(
            knowledge.acceptance, tuning.acceptance, tuning.copied, self.free
        )
        self.outlooks = Outlooks(tuning.gain)
        self.probes = ProbeSchedule(tuning.probes)
        self.sharing = Sharing(tuning.sharing)
        self.replies = ReplyLengths(tuning.replies)
        self.winnings = Winnings(tuning.winnings)
        self.credits = Credits(tuning.ledger)
        self.ledgers: dict[int, Ledger] = {}
        """The ledger of each sequence's running reply."""
        self.planned = Planned()

    @property
    def costs(self) -> Costs:
        """The costs for the context length of the last plan."""
        return self.passes.costs

    @property
    def unconfirmed(self) -> bool:
        """Whether too few passes over several tokens have shown what they cost now."""
        return not self.costs.confirmed or self.doubtful

    @property
    def doubtful(self) -> bool:
        """Whether what passes over several tokens cost is uncertain, since something changed."""
        return self.passes.doubt > self.tuning.unsure

    def cost(self, source: str, requests: int) -> float:
        """Cost of a drafted token, in plain passes, to each of the ``requests`` that wait for it,
        summed up.
        """
        if source in self.free:
            return 0.0
        return self.costs.draft(source) * requests / self.costs.verify(requests)


__all__ = ["Parts", "Planned"]
