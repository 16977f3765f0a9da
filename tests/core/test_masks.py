"""Masks in logits processing: the distribution over what is allowed, in every way to compute it."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.core.constraint import TokenMask
from localspec.core.errors import NothingAllowedError, NotNumbersError
from localspec.core.logits import GREEDY, LogitsProcessor, Sampling

SAMPLINGS = [
    GREEDY,
    Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0),
    Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05),
    Sampling(temperature=0.8, top_k=5, top_p=1.0, min_p=0.0),
    Sampling(temperature=1.0, repeat_penalty=1.3, presence_penalty=0.4),
    Sampling(temperature=0.0, repeat_penalty=1.3, logit_bias=((3, 4.0), (9, -np.inf))),
]


class _Fixed:
    """A constraint of one mask."""

    def __init__(self, mask: TokenMask) -> None:
        self._mask = mask

    def mask(self, before: object) -> TokenMask:
        return self._mask


def mask_of(allowed: np.ndarray, v: int) -> TokenMask:
    bits = np.zeros(-(-v // 32) * 32, np.uint8)
    bits[allowed] = 1
    return TokenMask(np.packbits(bits, bitorder="little").view(np.uint32))


@pytest.mark.parametrize("v", [50, 9000])
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("share", [0.001, 0.02, 0.4, 0.999])
def test_the_masked_distribution_is_that_of_a_row_without_the_forbidden_tokens(
    sampling: Sampling, share: float, v: int
) -> None:
    rng = np.random.default_rng(int(1000 * share) + v)
    before = rng.integers(0, v, 30).tolist()
    for _ in range(5):
        row = rng.normal(0, 3, v).astype(np.float32).round(1)  # with ties
        allowed = np.flatnonzero(rng.random(v) < share)
        allowed = allowed if len(allowed) else np.array([7])
        mask = mask_of(allowed, v)
        assert mask.ids.tolist() == allowed.tolist()
        assert mask.count == len(allowed)
        without = np.full(v, -np.inf, np.float32)
        without[allowed] = row[allowed]
        expected = LogitsProcessor(sampling, v)(without, before)
        found = LogitsProcessor(sampling, v, _Fixed(mask))(row, before)
        assert found.ids.tolist() == expected.ids.tolist()
        assert np.allclose(found.probs, expected.probs, rtol=1e-12)


def test_one_allowed_token_has_all_the_probability() -> None:
    mask = mask_of(np.array([33]), 100)
    assert mask.only == 33
    assert mask.allows_token(33)
    assert not mask.allows_token(400)
    assert mask.allows(np.array([33, 400, 2], np.int32)).tolist() == [True, False, False]
    found = LogitsProcessor(SAMPLINGS[2], 100, _Fixed(mask))(np.zeros(100, np.float32), ())
    assert found.ids.tolist() == [33]


def test_a_draft_without_the_allowed_tokens_has_nothing_to_propose() -> None:
    processor = LogitsProcessor(GREEDY, 100, _Fixed(mask_of(np.array([90]), 100)))
    with pytest.raises(NothingAllowedError):
        processor(np.zeros(64, np.float32), ())


def test_bias_and_grammar_may_forbid_all_and_a_row_of_nan_is_still_seen() -> None:
    sampling = Sampling(logit_bias=((5, -np.inf),))
    processor = LogitsProcessor(sampling, 40, _Fixed(mask_of(np.array([5]), 40)))
    with pytest.raises(NothingAllowedError, match="grammar"):
        processor(np.zeros(40, np.float32), ())
    with pytest.raises(NotNumbersError):
        processor(np.full(40, np.nan, np.float32), ())
