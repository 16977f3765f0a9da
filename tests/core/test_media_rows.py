"""Rows of pictures in lists of tokens: whole, recognised, and named by what they are made of."""

from __future__ import annotations

from localspec.core import media_rows
from localspec.core.media_rows import row_ids

A, B = row_ids(b"a", 5), row_ids(b"b", 3)
TEXT = [7, 8]


def test_rows_are_no_tokens_and_fit_into_32_bits() -> None:
    ids = row_ids(b"x", 4096)
    assert max(ids) <= -2
    assert min(ids) >= -(2**31)
    assert len(set(ids)) > 4090


def test_the_same_pixels_have_the_same_rows_and_others_have_others() -> None:
    assert row_ids(b"a", 5) == A
    assert not set(A) & set(row_ids(b"b", 5))
    assert row_ids(b"a", 4) != A[:4]  # another number of rows is another picture


def test_a_place_inside_a_picture_moves_to_its_beginning_or_end() -> None:
    tokens = [*TEXT, *A, *B, *TEXT]
    places = range(len(tokens) + 1)
    assert [media_rows.before(tokens, at) for at in places] == [
        *(0, 1, 2, 2, 2, 2, 2, 7, 7, 7, 10, 11, 12),
    ]
    assert [media_rows.after(tokens, at) for at in places] == [
        *(0, 1, 2, 7, 7, 7, 7, 7, 10, 10, 10, 11, 12),
    ]


def test_runs_separate_pictures_that_follow_one_another() -> None:
    tokens = [*A, *B, *TEXT, *A]
    assert [*media_rows.runs(tokens)] == [
        (0, 5, True),
        (5, 8, True),
        (8, 10, False),
        (10, 15, True),
    ]
    assert [*media_rows.runs([])] == []
    assert [*media_rows.runs(TEXT)] == [(0, 2, False)]
