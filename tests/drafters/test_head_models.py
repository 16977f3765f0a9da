"""Models of heads that read several sequences, one of which cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from localspec.core.errors import UnreadyError
from localspec.drafters.heads.dflash import BlockModel
from localspec.drafters.heads.eagle import HeadModel

V, WIDTH = 8, 4


class States:
    """Hidden states of sequence 0 are at hand, none of another."""

    def span(self, seq: int) -> tuple[int, int]:
        return (0, 7) if seq == 0 else (0, 0)

    def rows(self, seq: int, first: int, end: int) -> np.ndarray:
        return np.zeros((end - first, WIDTH), np.float32)


class Reader:
    """A head that notes the pairs and the states that it is given."""

    capacity, n_batch, depth, together = 100, 64, None, 0

    def __init__(self) -> None:
        self.read: list[tuple[int, int]] = []

    def fuse(self, features: np.ndarray) -> np.ndarray:
        return features

    def extend(
        self, seq: int, position: int, tokens: Sequence[int], states: np.ndarray, outputs: int
    ) -> tuple[np.ndarray, np.ndarray]:
        self.read.append((seq, position))
        return np.zeros((outputs, V), np.float32), states

    def inject(self, seq: int, position: int, features: np.ndarray) -> None:
        self.read.append((seq, position))

    def fill(self, seq: int, position: int, token: int) -> np.ndarray:
        return np.zeros((3, V), np.float32)

    def truncate(self, seq: int, length: int) -> None:
        pass


@pytest.mark.parametrize("make", [HeadModel, BlockModel])
def test_what_was_read_is_taken_back_where_another_sequence_cannot_be_read(
    make: Callable[..., Any],
) -> None:
    """Or its tokens would be appended a second time, since their readers were told of none."""
    reader = Reader()
    model, tokens = make(reader, States(), V), [*range(8)]
    for _ in range(2):
        with pytest.raises(UnreadyError):
            model.extend([(0, tokens, 1), (1, tokens, 1)])
    (row,) = model.extend([(0, tokens, 1)])
    assert row.shape == (1, V)
    assert reader.read == [(0, 0)] * 3
