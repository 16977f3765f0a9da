"""Constants of the controller, which include those of its parts: a laboratory may vary them."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.policy.acceptance import AcceptanceTuning
from localspec.policy.gain import GainTuning
from localspec.policy.loss_budget import LossTuning
from localspec.policy.probes import ProbeTuning


@dataclass(frozen=True, slots=True)
class ControllerTuning:
    """Constants of `Controller`; costs and gains are in plain passes and tokens."""

    cheap: float = 0.01
    """Cost of a drafted token below which a drafter is asked every round."""
    margin: float = 0.03
    """Tokens per round that a costly drafter must be expected to gain."""
    plain_every: int = 128
    """One round in this many is plain, so that its cost stays measured."""
    curve_every: int = 16
    """Rounds between two readings of the cost curve."""
    breadths: tuple[int, ...] = (2, 3, 4)
    """Nodes at each depth of a tree that are considered."""
    shallow: int = 4
    """Depth at which the cost of breadth is compared."""
    free: float = 1.2
    """Factor by which breadth may lengthen a pass of a drafter that drafts trees only."""
    faster: float = 0.4
    """Factor on the extra time of wide passes, were the machine as fast as can be hoped for."""
    rare: float = 1.0
    """Judged tokens that make a confidence bin count as seen."""
    enough: float = 20.0
    """Judged tokens before an empty bin counts as evidence."""
    quiet: int = 48
    """Rounds without a draft after which speculation is reported as parked."""
    acceptance: AcceptanceTuning = AcceptanceTuning()  # noqa: RUF009 - frozen
    gain: GainTuning = GainTuning()  # noqa: RUF009 - frozen
    loss_budget: LossTuning = LossTuning()  # noqa: RUF009 - frozen
    probes: ProbeTuning = ProbeTuning()  # noqa: RUF009 - frozen


__all__ = ["ControllerTuning"]
