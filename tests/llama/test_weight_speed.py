"""Seconds of a byte of weights on a GPU, of two models that differ in layers."""

import pytest

from localspec.llama.weight_speed import each_more


def test_what_a_pass_costs_whatever_its_layers_is_left_out():
    fixed, byte = 0.3e-3, 1e-12
    few, more = 245_000_000, 735_000_000
    times = [({1: fixed + byte * n, 4: fixed + 2 * byte * n}, n) for n in (few, more)]
    assert each_more(*times) == pytest.approx({1: byte, 4: 2 * byte})


def test_where_more_layers_were_not_slower_all_that_they_took_counts():
    found = each_more(({1: 3.0, 2: 4.0}, 10), ({1: 3.0}, 30))
    assert found == {1: 0.1}
