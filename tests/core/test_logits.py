"""Logits processing: llama.cpp's order and meaning, on the truncated support only."""

from __future__ import annotations

import ctypes
import dataclasses

import llama_cpp.llama_cpp as c_api
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.core.errors import DecodeError, NotNumbersError, UsageError
from localspec.core.logits import GREEDY, LogitsProcessor, Sampling
from localspec.core.values import Distribution

V = 5_000


def row(seed: int = 0, v: int = V, deviation: float = 4.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, deviation, v).astype(np.float32)


def of_llama(logits: np.ndarray, s: Sampling, before: list[int]) -> dict[int, float]:
    """The same settings through llama.cpp's own sampler chain: token -> probability."""
    chain = c_api.llama_sampler_chain_init(c_api.llama_sampler_chain_default_params())
    add = c_api.llama_sampler_chain_add
    add(
        chain,
        c_api.llama_sampler_init_penalties(
            V, s.penalty_last_n, s.repeat_penalty, s.frequency_penalty, s.presence_penalty
        ),
    )
    if s.top_k:
        add(chain, c_api.llama_sampler_init_top_k(s.top_k))
    add(chain, c_api.llama_sampler_init_top_p(s.top_p, 1))
    add(chain, c_api.llama_sampler_init_min_p(s.min_p, 1))
    add(chain, c_api.llama_sampler_init_temp(s.temperature))
    add(chain, c_api.llama_sampler_init_dist(1))
    for token in before:
        c_api.llama_sampler_accept(chain, token)
    data = (c_api.llama_token_data * len(logits))(
        *(c_api.llama_token_data(i, float(x), 0.0) for i, x in enumerate(logits))
    )
    array = c_api.llama_token_data_array(data, len(logits), -1, False)
    c_api.llama_sampler_apply(chain, ctypes.byref(array))
    found = {array.data[i].id: array.data[i].p for i in range(array.size)}
    c_api.llama_sampler_free(chain)
    return {token: p for token, p in found.items() if p > 0}


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=1.3, top_k=0, top_p=0.9, min_p=0.0),
        Sampling(temperature=0.5, top_k=7, top_p=1.0, min_p=0.2),
        Sampling(top_k=0, top_p=1.0, min_p=0.1),
        Sampling(repeat_penalty=1.4, frequency_penalty=0.3, presence_penalty=0.5),
    ],
)
def test_equals_llama_cpp_in_the_same_order(sampling: Sampling) -> None:
    logits = row(3)
    before = [5, 9, 9, int(np.argmax(logits)), 17]
    ours = LogitsProcessor(sampling, V)(logits, before)
    theirs = of_llama(logits, sampling, before)
    assert set(ours.ids.tolist()) == set(theirs)
    for token, p in zip(ours.ids.tolist(), ours.probs, strict=True):
        assert p == pytest.approx(theirs[token], abs=2e-6)


def check(d: Distribution) -> None:
    assert np.all(np.diff(d.ids) > 0)
    assert np.all(d.probs > 0)
    assert d.probs.sum() == pytest.approx(1.0)


@given(
    seed=st.integers(0, 10_000),
    v=st.integers(2, 700),
    k=st.integers(0, 60),
    top_p=st.sampled_from([0.0, 0.3, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 1.0]),
    temperature=st.sampled_from([0.0, 0.01, 0.8, 5.0]),
)
def test_always_a_distribution(
    seed: int, v: int, k: int, top_p: float, min_p: float, temperature: float
) -> None:
    sampling = Sampling(temperature=temperature, top_k=k, top_p=top_p, min_p=min_p)
    d = LogitsProcessor(sampling, v)(row(seed, v), [])
    check(d)
    assert int(np.argmax(row(seed, v))) in d.ids


@given(seed=st.integers(0, 10_000), v=st.integers(2, 9_000), k=st.integers(1, 50))
def test_top_k_is_the_exact_top_k_with_ties_to_the_smaller_id(seed: int, v: int, k: int) -> None:
    logits = np.round(row(seed, v), 0)  # many ties
    d = LogitsProcessor(Sampling(temperature=1, top_k=k, top_p=1, min_p=0), v)(logits, [])
    order = np.lexsort((np.arange(v), -logits))[:k]
    assert sorted(d.ids.tolist()) == sorted(order.tolist())


@pytest.mark.parametrize("allowed", [0, 1, 7, 40, 300])
@pytest.mark.parametrize("v", [90, 4096, 20_011])
def test_a_row_with_few_tokens_allowed_gives_these_alone(allowed: int, v: int) -> None:
    """A sort of the whole row gives the same; ties go to the smaller id."""
    rng = np.random.default_rng(v + allowed)
    row = np.full(v, -np.inf, np.float32)
    ids = rng.permutation(v)[:allowed]
    row[ids] = np.round(rng.normal(0, 2, len(ids)), 1)
    process = LogitsProcessor(Sampling(temperature=1, top_k=40, top_p=1, min_p=0), v)
    if not allowed:
        with pytest.raises(NotNumbersError):
            process(row, ())
        return
    best = np.sort(np.argsort(-row, kind="stable")[: min(40, len(ids))])
    probs = np.exp(row[best].astype(np.float64) - row.max())
    found = process(row, ())
    np.testing.assert_array_equal(found.ids, best)
    np.testing.assert_allclose(found.probs, probs / probs.sum(), rtol=1e-14)


def test_greedy_is_argmax_and_ties_go_to_the_smaller_id() -> None:
    logits = np.array([1, 7, 3, 7], np.float32)
    d = LogitsProcessor(GREEDY, 4)(logits, [])
    assert (d.ids.tolist(), d.probs.tolist()) == ([1], [1.0])
    assert d.certain


def test_the_row_is_not_changed() -> None:
    logits = row()
    was = logits.copy()
    LogitsProcessor(Sampling(repeat_penalty=2.0, logit_bias=((3, -np.inf),)), V)(logits, [1, 2, 3])
    assert np.array_equal(logits, was)


def test_only_the_last_tokens_are_penalised() -> None:
    sampling = dataclasses.replace(GREEDY, repeat_penalty=5.0, penalty_last_n=2)
    logits = np.array([4, 3, 0, 0], np.float32)
    assert LogitsProcessor(sampling, 4)(logits, [0, 2, 3]).ids.tolist() == [0]
    assert LogitsProcessor(sampling, 4)(logits, [2, 0]).ids.tolist() == [1]
    assert LogitsProcessor(sampling, 4).reads_text


def test_bias_forbids_and_forces() -> None:
    best = int(np.argmax(row()))
    forbid = dataclasses.replace(GREEDY, logit_bias=((best, -np.inf),))
    force = dataclasses.replace(GREEDY, logit_bias=((4999, 1e4),))
    assert LogitsProcessor(forbid, V)(row(), []).ids.tolist() != [best]
    assert LogitsProcessor(force, V)(row(), []).ids.tolist() == [4999]
    twice = dataclasses.replace(GREEDY, logit_bias=((7, 500.0), (7, 500.0)))
    assert LogitsProcessor(twice, V)(row(), []).ids.tolist() == [7]
    warm = dataclasses.replace(Sampling(top_k=0, top_p=1, min_p=0), logit_bias=((best, -np.inf),))
    assert best not in LogitsProcessor(warm, V)(row(), []).ids


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_k": -1},
        {"top_p": 1.5},
        {"min_p": -0.1},
        {"repeat_penalty": 0.0},
        {"repeat_penalty": 1e-300},
        {"temperature": 1e-310},
        {"penalty_last_n": -2},
    ],
)
def test_absurd_parameters_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Sampling(**wrong)


def test_bias_reaches_as_far_as_a_smaller_vocabulary() -> None:
    """A draft's vocabulary may be padded less than the target's."""
    process = LogitsProcessor(dataclasses.replace(GREEDY, logit_bias=((9, 5.0), (1, 5.0))), 10)
    assert process(np.zeros(8, np.float32), []).ids.tolist() == [1]


def test_bias_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(UsageError, match="ids run to 9"):
        LogitsProcessor(Sampling(logit_bias=((10, 1.0),)), 10)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_an_error(temperature: float) -> None:
    with pytest.raises(DecodeError, match="not numbers"):
        LogitsProcessor(Sampling(temperature=temperature), 3)(np.full(3, np.nan, np.float32), [])


@pytest.mark.parametrize("where", [0, 1234, V - 1])
@pytest.mark.parametrize("settings", [{}, {"top_k": 0}, {"temperature": 0.0}])
def test_a_single_logit_that_is_no_number_is_an_error(
    where: int, settings: dict[str, float]
) -> None:
    damaged = row()
    damaged[where] = np.nan
    with pytest.raises(DecodeError, match="not numbers"):
        LogitsProcessor(Sampling(**settings), V)(damaged, [])


def test_penalties_pass_over_ids_that_a_shorter_vocabulary_lacks() -> None:
    """A head or a draft model may have fewer ids than the target, whose text it reads."""
    s = Sampling(1.0, repeat_penalty=1.5, frequency_penalty=0.3, presence_penalty=0.2)
    row = np.array([1.0, 2.0, -1.0, 0.5], np.float32)
    found = LogitsProcessor(s, 9)(row, [8, 1, 4, 1, 2])
    right = LogitsProcessor(s, 9)(row, [1, 1, 2])
    np.testing.assert_array_equal(found.probs, right.probs)
