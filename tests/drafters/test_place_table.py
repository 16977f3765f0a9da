"""A hash table of places grows by pieces and loses nothing by it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from localspec.drafters.lookup import place_table
from localspec.drafters.lookup.place_table import PlaceTable

CODES = st.integers(0, (1 << 64) - 1)
STEPS = st.lists(st.tuples(st.lists(CODES, max_size=20), st.integers(0, 30_000)), max_size=8)


@given(STEPS, st.integers(1, 30_000))
def test_what_was_stored_last_in_its_slots_is_found_at_every_size(
    steps: list[tuple[list[int], int]], most: int
) -> None:
    table, last = PlaceTable(most), dict[int, int]()
    apart = 1 << (min(most, place_table._FIRST).bit_length() - 1)
    number = 0
    for codes, size in steps:
        places = np.arange(number + 1, number + 1 + len(codes))
        number += len(codes)
        table.put(np.array(codes, np.uint64), places)
        last |= {code % apart: at for at, code in enumerate(codes, number + 1 - len(codes))}
        stored = dict(zip(codes, places.tolist(), strict=True))
        table.grow(size)
        known = {code: at for code, at in stored.items() if last[code % apart] == at}
        assert {code: table.place(code) for code in known} == known
        some = np.array([*stored], np.uint64)
        assert table.places(some).tolist() == [table.place(code) for code in stored]
        assert table.n_bytes <= 4 * most


def test_what_was_never_stored_is_nowhere() -> None:
    table = PlaceTable(50_000)
    for size in (5000, 12_000, 50_000, 90_000):
        table.grow(size)
        assert {table.place(code) for code in range(0, 1 << 20, 7)} == {0}


def test_it_grows_to_its_most_and_no_further() -> None:
    table = PlaceTable(10_001)
    table.put(np.array([9999, 10_000 + (1 << 40)], np.uint64), np.array([5, 6]))
    for size in range(0, 20_000, 37):
        table.grow(size)
        assert (table.place(9999), table.place(10_000 + (1 << 40))) == (5, 6)
    assert table.n_bytes == 4 * 10_001
