"""A view of tokens is the list that it stands for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.core.values import TokenView

TOKENS = st.lists(st.integers(0, 9), max_size=8)
PLACE = st.none() | st.integers(-20, 20)


@given(TOKENS, TOKENS, st.integers(0, 8), PLACE, PLACE, st.sampled_from([None, 1, 2, -1, -3]))
def test_it_is_the_list(
    text: list[int], drafted: list[int], length: int, start: int, stop: int, step: int
) -> None:
    length = min(length, len(text))
    view, real = TokenView(text, drafted, length), [*text[:length], *drafted]
    assert [*view] == real
    assert len(view) == len(real)
    assert view[start:stop:step] == real[start:stop:step]
    for i in range(-len(real), len(real)):
        assert view[i] == real[i]
    for i in (len(real), -len(real) - 1):
        with pytest.raises(IndexError):
            view[i]


def test_tokens_appended_to_the_text_later_are_no_part_of_it() -> None:
    text = [1, 2]
    view = TokenView(text, (3,))
    text.append(7)
    assert [*view] == [1, 2, 3]
    assert view[-1] == 3
    assert view[1:] == [2, 3]
