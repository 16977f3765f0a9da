"""Constants of the controller, which include those of its parts: a laboratory may vary them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from localspec.policy.acceptance import COPIED, AcceptanceTuning
from localspec.policy.gain import GainTuning
from localspec.policy.ledger import LedgerTuning
from localspec.policy.probes import ProbeTuning
from localspec.policy.reply_lengths import ReplyLengthsTuning
from localspec.policy.sharing import SharingTuning
from localspec.policy.trees import TreesTuning
from localspec.policy.winnings import WinningsTuning


@dataclass(frozen=True, slots=True)
class ControllerTuning:
    """Constants of `Controller`; costs and gains are in plain passes and tokens."""

    cheap: float = 0.01
    """Cost of a drafted token below which a drafter is asked every round."""
    plain_every: int = 128
    """Rounds after the last plain one until the next, so that its cost stays measured."""
    plain_first: int = 8
    """The same until there were `plain_known` of them: the cost may have been measured wrongly."""
    plain_known: int = 3
    unpadded_every: int = 32
    """Rounds from one whose pass may not be padded to the next, so that the cost of widths that are
    padded stays measured."""
    kept: int = 8
    """Rounds for which the plan of a parked reply is kept at most."""
    curve_every: int = 16
    """Rounds between two readings of the cost curve."""
    faster: float = 0.4
    """Factor on the extra time of wide passes, were the machine as fast as can be hoped for."""
    behind: int = 32
    """Tokens that a drafter may have missed without being charged for reading them."""
    unknown: float = 0.012
    """Share of a reply's time for which a drafter reads the prompt of which little is known."""
    alone: float = 0.12
    """The same for a request that runs alone and may have `long` tokens: nobody else waits, and
    what the drafter shows decides for all replies that follow."""
    long: float = 32.0
    judged: float = 100.0
    """Judged tokens from which on a drafter is known."""
    shown: int = 8
    """Predictions in a text from which on they say more of it than other texts do."""
    quiet: int = 16
    """Rounds of a reply without a draft after which speculation is reported as parked."""
    bearable: float = 0.03
    """Share of the tokens of a reply that a draft may lose that does not pay by known costs."""
    trial: int = 3
    """Most tokens of a draft that is to measure costs of which nothing is known any more: a usual
    one shows how steep they are, and a long one may cost as much as all that the reply can win."""
    unsure: float = 0.35
    """Standard deviation of a cost's logarithm from which on it may well be much less."""
    acceptance: AcceptanceTuning = AcceptanceTuning()  # noqa: RUF009 - frozen
    gain: GainTuning = GainTuning()  # noqa: RUF009 - frozen
    copied: AcceptanceTuning = AcceptanceTuning(  # noqa: RUF009 - frozen
        prior=8.0, spread=0.5, expected=COPIED
    )
    """The same for drafters that copy from the text."""
    ledger: LedgerTuning = LedgerTuning()  # noqa: RUF009 - frozen
    trees: TreesTuning = TreesTuning()  # noqa: RUF009 - frozen
    sharing: SharingTuning = SharingTuning()  # noqa: RUF009 - frozen
    winnings: WinningsTuning = WinningsTuning()  # noqa: RUF009 - frozen
    replies: ReplyLengthsTuning = ReplyLengthsTuning()  # noqa: RUF009 - frozen
    probes: ProbeTuning = ProbeTuning()  # noqa: RUF009 - frozen

    def hope(self, doubt: float) -> float:
        """Factor that lowers a doubtful cost to the lowest plausible value."""
        return math.exp(-2 * max(0.0, doubt - self.unsure))


__all__ = ["ControllerTuning"]
