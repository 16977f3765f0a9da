"""The papers' formulas, against sums written out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.core.speed_formula import best_fixed, expected_tokens


@given(st.floats(0, 0.999), st.integers(0, 40))
def test_expected_tokens_is_the_geometric_sum(alpha: float, k: int) -> None:
    assert expected_tokens(alpha, k) == pytest.approx(sum(alpha**i for i in range(k + 1)))


def test_a_perfect_draft_gives_every_token_and_one() -> None:
    assert expected_tokens(1.0, 7) == 8


def test_a_draft_that_never_stands_is_best_not_used() -> None:
    assert best_fixed([0.0], {1: 1.0, 32: 1.0}, 0.01) == (1.0, 0)
    assert best_fixed([], {1: 1.0, 32: 1.0}, 0.0) == (1.0, 0)


def test_where_width_is_free_the_longest_draft_is_best() -> None:
    ratio, k = best_fixed([1.0], {1: 1.0, 32: 1.0}, 0.0)
    assert (ratio, k) == (32.0, 31)


def test_steps_of_the_curve_are_used() -> None:
    """Four tokens cost no more than two; five cost twice as much."""
    curve = {1: 1.0, 2: 1.5, 3: 1.5, 4: 1.5, 5: 3.0, 32: 20.0}
    ratio, k = best_fixed([0.9], curve, 0.0)
    assert k == 3
    assert ratio == pytest.approx(expected_tokens(0.9, 3) / 1.5)


def test_positions_have_their_own_acceptance_and_the_last_stands_for_all_beyond() -> None:
    ratio, k = best_fixed([1.0, 0.5], {1: 1.0, 4: 1.0}, 0.0)
    assert k == 3
    assert ratio == pytest.approx(1 + 1 + 0.5 + 0.25)


def test_the_draft_has_to_be_paid_for() -> None:
    assert best_fixed([0.5], {1: 1.0, 8: 1.0}, 0.0)[1] == 7
    assert best_fixed([0.5], {1: 1.0, 8: 1.0}, 0.2)[1] == 1
    assert best_fixed([0.5], {1: 1.0, 8: 1.0}, 0.6)[1] == 0
