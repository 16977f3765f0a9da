"""What passes and drafted tokens cost: swept, corrected by use, padded."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from localspec.core.plan import Outcome, RequestState
from localspec.policy.controller import Controller
from localspec.policy.costs import WIDTHS, Costs
from localspec.policy.prices import PriceList, bucket_of, quickest
from localspec.policy.storage import Knowledge


@pytest.mark.parametrize("width", [1, 3, 4, 6, 20])
def test_unmeasured_widths_are_interpolated(width: int) -> None:
    assert Costs({1: 1.0, 4: 4.0, 8: 8.0}).pass_seconds(width) == pytest.approx(width)


@pytest.mark.parametrize("known", [{4: 2.0}, {1: 1.0, 2: 1.5, 8: 3.0, 16: 6.5}, {3: 1.0, 9: 2.0}])
def test_all_widths_at_once_cost_what_each_does(known: dict[int, float]) -> None:
    costs = Costs(known)
    for width, seconds in ((1, 1.3), (5, 2.6), (2, 1.1)) * 3:
        costs.record_pass(width, seconds)
    costs.record_pass(9, 3.0)
    widths = np.arange(1, 80)
    each = [costs.pass_seconds(int(width)) for width in widths]
    assert costs.passes_seconds(widths) == pytest.approx(each, rel=1e-12)


def test_passes_of_hundreds_of_widths_keep_a_few_dozen_and_all_count() -> None:
    """Many requests with drafts of all lengths: each width of its own would make every observation
    dearer, with the square of their number.
    """
    costs = Costs({1: 1.0, 4: 1.3, 64: 7.3})
    for _ in range(3):
        for width in range(1, 400, 2):
            costs.record_pass(width, 2 * (1 + 0.1 * (width - 1)))
    assert len(costs.curve()) == WIDTHS
    for width in (2, 50, 93, 94):
        assert costs.pass_seconds(width) == pytest.approx(2 * (1 + 0.1 * (width - 1)), rel=0.1)


def test_a_single_slow_pass_does_not_stay() -> None:
    costs = Costs({1: 1.0, 4: 1.2})
    costs.record_pass(4, 1000.0)
    assert costs.pass_seconds(4) < 1.3 * 1.2


def test_a_machine_that_gets_slower_leaves_the_shape_of_the_curve() -> None:
    costs = Costs({1: 1.0, 4: 2.0})
    for _ in range(60):
        costs.record_pass(4, 6.0)
    assert costs.pass_seconds(4) == pytest.approx(6.0, rel=0.05)
    assert costs.pass_seconds(4) / costs.pass_seconds(1) == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("times", [1.5, 3.0, 8.0])
def test_a_machine_that_was_slow_while_every_round_drafted_is_as_fast_as_before(
    times: float,
) -> None:
    """No plain pass shows it: what passes over several tokens and drafts have in common does."""
    costs = Costs({1: 1.0, 4: 2.0}, {"model": 0.1})
    for slow in (1.0, times, 1.0):
        for _ in range(40):
            costs.record_pass(4, 2.0 * slow)
            costs.record_draft("model", 3, 0.3 * slow)
        assert costs.pass_seconds(1) == pytest.approx(slow, rel=0.1)
        assert costs.pass_seconds(4) == pytest.approx(2.0 * slow, rel=0.1)


def test_a_wide_pass_that_is_quicker_than_a_plain_one_shows_that_this_was_seen_long_ago() -> None:
    costs = Costs({1: 1.0, 4: 2.0})
    for _ in range(9):
        costs.record_pass(1, 5.0)
    assert not costs.stale
    costs.record_pass(4, 2.0)
    costs.record_pass(4, 2.0)
    assert costs.stale
    costs.record_pass(1, 1.0)
    assert not costs.stale
    assert costs.pass_seconds(1) == pytest.approx(1.0, rel=0.1)


def test_a_curve_that_was_measured_wrongly_is_put_right_by_use() -> None:
    costs = Costs({1: 1.0, 4: 1.0})
    for _ in range(300):
        costs.record_pass(1, 1.0)
        costs.record_pass(4, 3.0)
    assert costs.pass_seconds(4) / costs.pass_seconds(1) == pytest.approx(3.0, rel=0.1)


def test_arithmetic_that_got_faster_is_noticed_on_one_width_and_believed_of_all() -> None:
    """A neighbour leaves the machine: several tokens cost half, a single one what it did."""
    costs = Costs({1: 1.0, 4: 2.6, 16: 7.4})
    for _ in range(8):
        costs.record_pass(1, 1.0)
        costs.record_pass(4, 1.3)
    assert costs.pass_seconds(1) == pytest.approx(1.0, rel=0.1)
    assert costs.pass_seconds(4) == pytest.approx(1.3, rel=0.15)
    assert costs.pass_seconds(16) == pytest.approx(3.7, rel=0.25)


TRUE = {1: 1.0, 2: 1.9, 3: 2.7, 4: 2.6, 8: 5.0}


@pytest.mark.parametrize(
    "wrong",
    [
        {n: 50 * s for n, s in TRUE.items()},
        {n: s / 50 for n, s in TRUE.items()},
        TRUE | {1: 50.0},
        TRUE | {1: 0.5},
        TRUE | {4: 10.4},
        TRUE | {4: 1.3},
        {n: 4 * s if n > 1 else s for n, s in TRUE.items()},
        {n: 1 + n / 100 for n in TRUE},
    ],
)
def test_a_wrong_curve_is_right_after_two_dozen_rounds(wrong: dict[int, float]) -> None:
    """The whole curve, single widths, or another machine's; drafts of all lengths occur."""
    costs = Costs(wrong)
    for _ in range(6):
        for width in (1, 4, 2, 8):
            costs.record_pass(width, TRUE[width])
    for width in (2, 4, 8):
        ratio = costs.pass_seconds(width) / costs.pass_seconds(1)
        assert ratio == pytest.approx(TRUE[width], rel=0.2)


def test_a_drafted_token_slows_down_with_passes_until_it_is_measured() -> None:
    """The sweep was taken beside another program, and so was the time of a draft."""
    costs = Costs({1: 50.0, 4: 130.0}, {"model": 5.0})
    for _ in range(3):
        costs.record_pass(1, 1.0)
    assert costs.token_seconds("model") / costs.pass_seconds(1) == pytest.approx(0.1, rel=0.1)


def test_a_draft_model_that_reads_what_it_missed_is_not_taken_for_slow() -> None:
    costs = Costs({1: 1.0, 4: 2.6}, {"model": 0.1})
    for _ in range(5):
        costs.record_draft_at_most("model", 0.8)
    assert costs.token_seconds("model") == pytest.approx(0.1)
    costs.record_draft_at_most("model", 0.05)
    assert costs.token_seconds("model") < 0.06


def test_times_that_only_a_disturbed_sweep_finds_are_not_believed() -> None:
    assert Costs({1: 0.64, 4: 0.027}).pass_seconds(1) == pytest.approx(0.027)
    assert Costs({1: 1.0, 4: 40.0}).pass_seconds(4) == pytest.approx(6.0)


def test_a_curve_of_another_day_is_moved_by_a_glance() -> None:
    kept = Costs({1: 1.0, 4: 2.6, 8: 4.7, 16: 7.4}, {"model": 0.1, "other": 0.2})
    today = kept.renewed({1: 1.0, 4: 1.3}, {"model": 0.05})
    assert today.pass_seconds(4) == pytest.approx(1.3)
    assert today.pass_seconds(16) == pytest.approx(3.7)
    assert (today.token_seconds("model"), today.token_seconds("other")) == (0.05, 0.2)


def test_several_tokens_never_cost_less_than_one() -> None:
    costs = Costs({1: 1.0, 4: 1.1})
    for _ in range(30):
        costs.record_pass(1, 1.0)
        costs.record_pass(4, 0.3)
    assert costs.pass_seconds(4) >= costs.pass_seconds(1)


@pytest.mark.parametrize("sweep", [{}, {1: 0.0}, {1: -1.0}, {1: math.inf}, {0: 1.0}])
def test_a_sweep_without_times_is_refused(sweep: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="positive time"):
        Costs(sweep)


def test_buckets_of_context_grow_by_fours() -> None:
    assert [bucket_of(n) for n in (1, 1024, 1025, 4096, 4097, 16384, 16385)] == [
        0, 0, 1, 1, 2, 2, 3,
    ]  # fmt: skip


def test_a_longer_context_begins_with_all_that_is_known_of_a_shorter_one() -> None:
    """With what was measured, and with the doubt: what is believed must not count as either."""
    costs = Costs({1: 1.0, 4: 1.1}, {"model": 0.1})
    for width, seconds in ((1, 1.0), (4, 5.0)) * 8:
        costs.record_pass(width, seconds)
    for shorter in (bucket_of(1000), bucket_of(4000)):
        prices = PriceList({shorter: costs}, 8, {}, pads=False)
        prices.read(5000, 1, 1)
        longer = prices.costs
        assert longer is not costs
        assert longer.measured_share() == costs.measured_share() < 0.1
        assert longer.doubt(4) == costs.doubt(4)
        assert longer.draft_doubt("model") == costs.draft_doubt("model")
        longer.record_pass(4, 1.1)
        assert longer.pass_seconds(4) < costs.pass_seconds(4)


@pytest.mark.parametrize("seed", range(8))
def test_a_neighbour_that_comes_and_goes_while_nothing_is_drafted_moves_no_cost(seed: int) -> None:
    """Plain passes and looks of a draft cannot tell a slow machine from offsets of their own."""
    measured = {1: 1.2e-3, 2: 1.5e-3, 4: 2.3e-3, 8: 3e-3, 16: 5e-3}
    costs, chance = Costs(measured, {"model": 5e-5}), random.Random(seed)
    for reply in range(40):
        disturbed = reply % 5 == 0
        passes = chance.choice([20.0, 40.0]) if disturbed else 1.0
        drafts = chance.choice([1.0, passes])
        until = chance.randrange(1, 60)
        for i in range(70):
            slow = i < until
            if i % 20 == 0:
                costs.record_draft("model", 8, 8 * 5e-5 * (drafts if slow else 1.0))
            costs.record_pass(1, measured[1] * (passes if slow else 1.0))
    assert costs.pass_seconds(1) == pytest.approx(measured[1], rel=0.2)
    assert costs.pass_seconds(4) / costs.pass_seconds(1) < 7
    assert costs.curve()[1] == pytest.approx(measured[1], rel=3)
    assert costs.curve()[1] > measured[1] / 4


DIP = {1: 67.0, 2: 114.0, 3: 144.0, 4: 94.0, 5: 147.0, 8: 178.0, 16: 263.0}
"""Milliseconds by width, as measured on a Xeon with AVX-512: four tokens cost less than two."""


def test_a_width_is_computed_as_the_quickest_that_holds_it() -> None:
    rows = quickest(np.array([Costs(DIP).pass_seconds(n) for n in range(1, 17)]))
    assert rows[:5] == [1, 4, 4, 4, 5]
    assert rows[5:] == [*range(6, 17)]


def test_widths_that_differ_by_no_more_than_noise_are_left_as_they_are() -> None:
    assert quickest(np.array([1.0, 2.0, 1.96, 1.99, 1.95])) == [1, 2, 3, 4, 5]
    assert quickest(np.array([1.0, 0.5, 0.5])) == [1, 2, 3]  # plain decoding is never padded


def test_a_policy_plans_padding_where_the_target_can_pad_and_a_request_is_alone() -> None:
    state = RequestState(0, 10, 0, "greedy")
    for pads in (False, True):
        policy = Controller(Knowledge({0: Costs(DIP, {"model": 4.0})}), ["model"], pads=pads)
        (plan,) = policy.plan([state])
        assert plan.rows(2) == (4 if pads else 2)
        assert plan.within(1, 1).rows(2) == plan.rows(2)
        two = policy.plan([state, replace(state, seq=1)])
        assert [plan.rows(2) for plan in two] == [2, 2]


def test_a_padded_pass_is_booked_under_the_width_that_was_computed() -> None:
    costs = Costs(DIP, {"model": 4.0})
    policy = Controller(Knowledge({0: costs}), ["model"], pads=True)
    before = costs.curve()
    for _ in range(60):  # passes over four tokens have become quicker, and hold two
        policy.plan([RequestState(0, 10, 0, "greedy")])
        policy.learn([Outcome(0, "model", 1, 0, 1, 0.0, 80.0, padding=2)], [])
        policy.plan([RequestState(0, 10, 0, "greedy")])
        policy.learn([Outcome(0, "", 0, 0, 0, 0.0, 67.0)], [])
    assert costs.curve()[4] == pytest.approx(80.0, rel=0.05)
    ratio = costs.curve()[3] / costs.curve()[2]
    assert ratio == pytest.approx(before[3] / before[2], rel=0.05)
