"""What is known of requests with adapters of their own, in this session and in the next one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from localspec.core.adapter_list import Blend
from localspec.loading.policy import MeasuredControl
from localspec.policy.acceptance import AcceptanceEstimate
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.storage import Knowledge

BLEND = Blend((("a", 1.0),), "a")
KEY = "model", "greedy"


def control(folder: Path) -> MeasuredControl:
    """That of a new session, whose glance has found what passes take."""
    knowledge = Knowledge({0: Costs({1: 30.0, 4: 32.0}, {"model": 6.0})})
    another = partial(Controller, sources=["model"])
    nothing = Mock(), Mock(), {}
    return MeasuredControl(
        another(knowledge), *nothing, folder / "costs.json", knowledge, another=another
    )


def test_costs_of_a_blend_begin_with_those_of_the_model_and_acceptance_is_kept(
    tmp_path: Path,
) -> None:
    """What passes took with it in a slow while was believed in every later session."""
    first = control(tmp_path)
    adapted = first.policy_for(BLEND)
    assert isinstance(adapted, Controller)
    for width, seconds in ((1, 30.0), (4, 320.0)) * 60:
        adapted.costs.record_pass(width, seconds)
    assert adapted.costs.pass_seconds(4) > 5 * adapted.costs.pass_seconds(1)
    assert adapted.costs.measured_share() < 0.1, "it is looked at"
    assert first.policy.costs.pass_seconds(4) == pytest.approx(32.0), (
        "the model has costs of its own"
    )
    adapted.knowledge.acceptance[KEY] = AcceptanceEstimate()
    adapted.knowledge.acceptance[KEY].learn(0.9, accepted=True)
    first.save()
    again = control(tmp_path).policy_for(BLEND)
    assert isinstance(again, Controller)
    assert again.costs.pass_seconds(4) == pytest.approx(32.0)
    assert sum(again.knowledge.acceptance[KEY].judged) > 0


def test_what_is_doubtful_of_the_model_is_looked_at_with_a_blend_too(tmp_path: Path) -> None:
    found = control(tmp_path)
    for width, seconds in ((1, 30.0), (4, 320.0)) * 60:
        found.policy.costs.record_pass(width, seconds)
    adapted = found.policy_for(BLEND)
    assert isinstance(adapted, Controller)
    assert adapted.costs.measured_share() == found.policy.costs.measured_share() < 0.1
