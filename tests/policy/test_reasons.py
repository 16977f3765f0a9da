"""The reasons that are shown where nothing is drafted."""

from __future__ import annotations

import numpy as np

from localspec.policy.acceptance import AcceptanceEstimate
from localspec.policy.reasons import why_parked


def test_the_figures_of_a_reason_are_what_passes_take_not_what_others_are_spared() -> None:
    measured = np.array([1.0, 1.2, 1.6, 2.4])
    charged = 1 + 10 * (measured - 1)
    why = why_parked(AcceptanceEstimate(), charged, 0.2, 0.02, 4, measured)
    assert "with 4 requests at once" in (why.reason or "")
    assert "checking 4 tokens each takes 2.4 times" in (why.reason or "")
    assert why.brief == "checking drafts costs too much here"
