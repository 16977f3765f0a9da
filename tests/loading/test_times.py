"""The shapes of passes are chosen by what passes take now, not by what they took at load."""

from __future__ import annotations

from localspec.loading.policy import Control, off
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.simple import FixedLength
from localspec.policy.storage import Knowledge


def curve(*seconds: float) -> Costs:
    return Costs(dict(enumerate(seconds, 1)))


def test_times_are_those_of_the_last_measurement() -> None:
    policy = Controller(Knowledge({0: curve(1.0, 1.1, 1.2)}), ["suffix"], free=["suffix"])
    times = Control(policy).times
    assert times is not None
    assert times.pass_seconds(3) == 1.2
    policy.measured({0: curve(1.0, 5.0, 6.0)})
    assert times.pass_seconds(3) > 4.0


def test_a_fixed_length_measures_too_and_plain_decoding_does_not() -> None:
    times = Control(FixedLength(2, curve(1.0, 2.0))).times
    assert times is not None
    assert times.pass_seconds(2) == 2.0
    assert off("no draft").times is None
