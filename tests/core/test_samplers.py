"""DRY, XTC, locally typical, top-n-sigma, dynamic temperature and Mirostat are llama.cpp's own, in
its order and in any other: compared with its samplers, and with tables written out by hand.
"""

from __future__ import annotations

import ctypes
import dataclasses
import math
import random
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, Self

import llama_cpp.llama_cpp as c_api
import numpy as np
import pytest

from localspec.core import repetition, sampler_chain
from localspec.core.constraint import TokenMask
from localspec.core.errors import UsageError
from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.noise import Noise, Stream
from localspec.core.repetition import Breakers, Repetitions, breakers_of
from localspec.core.sampler_chain import SamplerChain, mirostat_start, zipf_cut
from localspec.core.sampler_settings import read_breakers, read_samplers
from localspec.core.values import one_hot

V = 3_000
OFF = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
ALWAYS = 1.0


def row(seed: int = 0, v: int = V, deviation: float = 4.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, deviation, v).astype(np.float32)


def llama_steps(s: Sampling, v: int) -> Iterator[Any]:
    """llama.cpp's own samplers in the order of ``s``, as its common_sampler_init makes them."""
    if s.mirostat:
        yield c_api.llama_sampler_init_temp(s.temperature)
        return
    makers = {
        "penalties": lambda: c_api.llama_sampler_init_penalties(
            v, s.penalty_last_n, s.repeat_penalty, s.frequency_penalty, s.presence_penalty
        ),
        "dry": lambda: c_api.llama_sampler_init_dry(
            None,
            *(s.dry_multiplier, s.dry_base, s.dry_allowed_length, s.dry_penalty_last_n),
            *(None, 0),
        ),
        "top_n_sigma": lambda: c_api.llama_sampler_init_top_n_sigma(s.top_n_sigma),
        "top_k": lambda: c_api.llama_sampler_init_top_k(s.top_k),
        "typ_p": lambda: c_api.llama_sampler_init_typical(s.typical_p, 0),
        "top_p": lambda: c_api.llama_sampler_init_top_p(s.top_p, 0),
        "min_p": lambda: c_api.llama_sampler_init_min_p(s.min_p, 0),
        "xtc": lambda: c_api.llama_sampler_init_xtc(s.xtc_probability, s.xtc_threshold, 0, 1),
        "temperature": lambda: c_api.llama_sampler_init_temp_ext(
            s.temperature, s.dynatemp_range, s.dynatemp_exponent
        ),
    }
    for name in s.order:
        if name != "dry" or s.dries:
            yield makers[name]()


def candidates(logits: np.ndarray) -> Any:
    data = (c_api.llama_token_data * len(logits))(
        *(c_api.llama_token_data(i, float(x), 0.0) for i, x in enumerate(logits))
    )
    return c_api.llama_token_data_array(data, len(logits), -1, False)


def of_llama(logits: np.ndarray, s: Sampling, before: list[int]) -> dict[int, float]:
    chain = c_api.llama_sampler_chain_init(c_api.llama_sampler_chain_default_params())
    for sampler in (*llama_steps(s, len(logits)), c_api.llama_sampler_init_dist(1)):
        c_api.llama_sampler_chain_add(chain, sampler)
    for token in before:
        c_api.llama_sampler_accept(chain, token)
    array = candidates(logits)
    c_api.llama_sampler_apply(chain, ctypes.byref(array))
    found = {array.data[i].id: array.data[i].p for i in range(array.size)}
    c_api.llama_sampler_free(chain)
    return {token: p for token, p in found.items() if p > 0}


def of_ours(
    logits: np.ndarray, s: Sampling, before: list[int], breakers: Breakers | None = None
) -> dict[int, float]:
    process = LogitsProcessor(s, len(logits), noise=Noise(1), breakers=breakers or {})
    d = process(logits, before)
    assert np.all(np.diff(d.ids) > 0)
    assert d.probs.sum() == pytest.approx(1.0)
    return dict(zip(d.ids.tolist(), d.probs.tolist(), strict=True))


def agree(ours: dict[int, float], theirs: dict[int, float]) -> None:
    tiny = 1e-6
    assert {t for t, p in ours.items() if p > tiny} == {t for t, p in theirs.items() if p > tiny}
    for token, p in theirs.items():
        assert ours.get(token, 0.0) == pytest.approx(p, abs=3e-6)


SETTINGS = {
    "typical": dataclasses.replace(OFF, typical_p=0.7),
    "hardly typical": dataclasses.replace(OFF, typical_p=0.05, top_k=30),
    "sigma": dataclasses.replace(OFF, top_n_sigma=1.5),
    "sigma before the usual ones": Sampling(top_n_sigma=0.7),
    "xtc": dataclasses.replace(OFF, xtc_probability=ALWAYS, xtc_threshold=0.02),
    "xtc after top-k": Sampling(xtc_probability=ALWAYS, xtc_threshold=0.1),
    "cold xtc": Sampling(temperature=0, xtc_probability=ALWAYS, xtc_threshold=0.1),
    "dynamic": dataclasses.replace(OFF, temperature=0.9, dynatemp_range=0.5),
    "dynamic from zero": Sampling(temperature=0.3, dynatemp_range=0.6, dynatemp_exponent=2.5),
    "dynamic cold": Sampling(temperature=0.0, dynatemp_range=0.6, top_k=5, top_p=1, min_p=0),
    "sigma then dynamic": dataclasses.replace(
        OFF, top_k=40, top_n_sigma=0.1, dynatemp_range=0.5, temperature=1.2
    ),
    "dry": dataclasses.replace(OFF, dry_multiplier=0.8),
    "dry from the first": dataclasses.replace(
        OFF, dry_multiplier=1.5, dry_allowed_length=0, dry_penalty_last_n=9
    ),
    "dry with penalties": Sampling(dry_multiplier=2.0, dry_allowed_length=1, repeat_penalty=1.3),
    "everything": Sampling(
        temperature=1.1,
        repeat_penalty=1.2,
        dry_multiplier=0.8,
        typical_p=0.95,
        xtc_probability=ALWAYS,
        xtc_threshold=0.05,
        dynatemp_range=0.4,
    ),
    "in another order": Sampling(
        temperature=1.4,
        min_p=0.1,
        repeat_penalty=1.3,
        samplers="temperature,min_p,top_k,penalties,top_p",
    ),
    "some left out": Sampling(temperature=0.2, samplers="top_k,min_p"),
    "none": Sampling(samplers="none"),
    "temperature before xtc": Sampling(
        temperature=1.5, xtc_probability=ALWAYS, samplers="temperature,xtc"
    ),
    "penalties last": Sampling(presence_penalty=1.5, samplers="top_k,temperature,penalties"),
    "twice": Sampling(samplers="top_p,temperature,top_p"),
}
TEXT = [5, 9, 9, 17, 5, 9, 9, 8, 100, 5, 9, 9]


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("seed", range(6))
def test_the_distribution_is_llama_cpps(setting: str, seed: int) -> None:
    s, logits = SETTINGS[setting], row(seed)
    for i, token in enumerate((17, 8, 9)):  # they go on with a repetition: among the best
        logits[token] = logits.max() - 0.5 - 0.3 * i
    agree(of_ours(logits, s, TEXT), of_llama(logits, s, TEXT))


@pytest.mark.parametrize("seed", range(40))
def test_any_settings_give_llama_cpps_distribution(seed: int) -> None:
    rng = random.Random(seed)
    names = [*rng.sample(Sampling().order, rng.randint(1, 9))]
    s = Sampling(
        temperature=rng.choice([0.0, 0.5, 1.0, 2.0]),
        top_k=rng.choice([0, 3, 40]),
        top_p=rng.choice([1.0, 0.9]),
        min_p=rng.choice([0.0, 0.05]),
        repeat_penalty=rng.choice([1.0, 1.3]),
        dry_multiplier=rng.choice([0.0, 0.7]),
        dry_allowed_length=rng.choice([0, 1, 2, 5]),
        dry_base=rng.choice([1.0, 1.75]),
        typical_p=rng.choice([1.0, 0.6]),
        top_n_sigma=rng.choice([0.0, 1.0, 2.5]),
        xtc_probability=rng.choice([0.0, ALWAYS]),
        xtc_threshold=rng.choice([0.03, 0.2]),
        dynatemp_range=rng.choice([0.0, 0.4]),
        samplers=",".join(names),
    )
    if s.top_n_sigma:  # llama.cpp's typical takes 0 * log(0) for NaN after it; ours for 0
        s = dataclasses.replace(s, typical_p=1.0)
    before = [rng.randrange(4) for _ in range(60)]
    logits = row(seed, 500, 2.0)
    agree(of_ours(logits, s, before), of_llama(logits, s, before))


def test_typical_after_sigma_looks_at_what_is_possible() -> None:
    """Where llama.cpp's entropy is NaN: the same as a row of those candidates alone."""
    logits = row(2)
    left = of_ours(logits, dataclasses.replace(OFF, top_n_sigma=1.0), [])
    only = np.array([logits[token] for token in left], np.float32)
    found = of_ours(logits, dataclasses.replace(OFF, top_n_sigma=1.0, typical_p=0.4), [])
    alone = of_llama(only, dataclasses.replace(OFF, typical_p=0.4), [])
    agree(found, {[*left][i]: p for i, p in alone.items()})


def lengths_by_hand(text: list[int], allowed: int) -> dict[int, int]:
    """Of every end of the text that was there before, the longest by the token after it."""
    found: dict[int, int] = {}
    for place in range(len(text) - 1):
        length = 0
        while length <= place and text[place - length] == text[-1 - length]:
            length += 1
        if length >= allowed:
            found[text[place + 1]] = max(length, found.get(text[place + 1], 0))
    return found if len(text) > allowed else {}


def continuations(
    text: Sequence[int], allowed: int, breakers: Breakers, most: int
) -> dict[int, int]:
    return Repetitions(breakers).continuations(text, allowed, most)


@pytest.mark.parametrize("seed", range(30))
def test_dry_finds_the_longest_repetition_of_each_token(seed: int) -> None:
    rng = random.Random(seed)
    text = [rng.randrange(3) for _ in range(rng.randint(1, 40))]
    for allowed in (0, 1, 2, 4):
        assert continuations(text, allowed, {}, 1000) == lengths_by_hand(text, allowed)


def test_dry_does_not_look_beyond_a_breaker_and_never_penalises_one() -> None:
    text = [1, 2, 3, 4, 1, 2, 3]
    assert continuations(text, 1, {}, 99) == {4: 3}
    assert continuations(text, 1, {1: ((),)}, 99) == {4: 2}
    assert continuations(text, 1, {3: ((),)}, 99) == {}  # nothing since the last breaker
    assert continuations(text, 1, {4: ((),)}, 99) == {}  # the token itself is one
    assert continuations(text, 1, {1: ((2,),)}, 99) == {4: 1}  # a breaker of two tokens
    assert continuations(text, 1, {1: ((9,),)}, 99) == {4: 3}  # not there
    assert continuations(text, 1, {}, 1) == {4: 2}  # the penalty grows no further


@pytest.mark.parametrize("seed", range(60))
def test_what_dry_knows_of_one_text_holds_for_the_next(seed: int) -> None:
    """Drafts make texts longer by a token, rejected ones shorter again; windows slide."""
    rng = random.Random(seed)
    tails = [tuple(rng.randrange(3) for _ in range(rng.choice((0, 1, 2, 20)))) for _ in range(3)]
    breakers = {rng.randrange(3): tuple(tails)} if seed % 3 else {}
    found = Repetitions(breakers)
    text = [rng.randrange(rng.choice((1, 3))) for _ in range(rng.randint(1, 50))]
    window = rng.choice((5, 30, 1000))
    for _ in range(40):
        if rng.random() < 0.4:
            del text[max(1, len(text) - rng.randint(1, 6)) :]
        text += [rng.randrange(3) for _ in range(rng.choice((0, 1, 1, 1, 2, 6)))]
        lately, allowed = text[-window:], rng.randrange(3)
        fresh = continuations(lately, allowed, breakers, 12)
        assert found.continuations(lately, allowed, 12) == fresh


class Steps:
    """Counts the lines of `Repetitions` that are executed."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, _event: str, _argument: object) -> Any:
        ours = frame.f_code.co_filename == repetition.__file__
        return self._line if ours else None

    def _line(self, _frame: FrameType, event: str, _argument: object) -> Any:
        self.count += event == "line"
        return self._line


def test_drys_work_grows_with_the_text_alone() -> None:
    """Not with its square, nor with the number of beginnings of breakers in it: that would be a
    minute for each token, for which all replies wait. A row after the first one takes no loop over
    the text at all."""
    breakers = {5: tuple((5,) * n + (6,) for n in range(20))}
    firsts, others = [], set()
    for length in (500, 1000, 2000):
        found, text = Repetitions(breakers), [5] * length
        with Steps() as steps:
            assert found.continuations(text, 2, 10**7) == {5: len(text) - 1}
        firsts.append(steps.count)
        for _ in range(10):
            text.append(5)
            with Steps() as steps:
                assert found.continuations(text, 2, 10**7) == {5: len(text) - 1}
            others.add(steps.count)
    assert firsts[1] - firsts[0] > 500
    assert firsts[2] - firsts[1] == 2 * (firsts[1] - firsts[0])
    assert max(others) < 1000
    assert len(others) == 1


def test_a_vocabulary_is_sorted_once_whatever_samplers_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 150,000 tokens that takes 15 ms, for which all replies wait."""
    sorted_, argsort = [], np.argsort

    def counted(keys: np.ndarray, **how: Any) -> np.ndarray:
        sorted_.append(keys.dtype)
        return argsort(keys, **how)

    monkeypatch.setattr(sampler_chain.np, "argsort", counted)
    sampling = Sampling(
        temperature=1.5,
        top_p=0.999,
        min_p=1e-9,
        top_n_sigma=9.0,
        xtc_probability=1.0,
        xtc_threshold=2.04e-4,  # of a few hundred tokens
        samplers="top_p,top_n_sigma,min_p,xtc,top_p,min_p,top_n_sigma,temperature",
    )
    chain = SamplerChain(sampling, Noise(1), {})
    found = chain.distribution(row(v=5000, deviation=0.01), None, [1, 2], 0.0, None)
    assert len(found.ids) > 1000
    assert sorted_ == [np.float32]


@pytest.mark.slow
def test_breakers_are_looked_for_in_a_large_vocabulary_at_once() -> None:
    pieces = [str(i).encode() for i in range(150_000)]
    texts = ["".join(random.Random(i).choices("0123456789", k=40)) for i in range(64)]
    found = breakers_of(texts, pieces, lambda text: [len(text)])
    for token in (3, 41, 777, 149_999):
        rests = {
            (len(text) - cut,)
            for text in texts
            for cut in range(1, len(text))
            if pieces[token].decode().endswith(text[:cut])
        }
        assert set(found.get(token, ())) == rests


def test_breakers_are_found_inside_of_tokens_and_across_them() -> None:
    pieces = [b"a", b"b", b"x:\n", b"ab", b"--", b"-", b">", b"y-"]
    split = {">": [6], "->": [5, 6], "-": [5]}
    found = breakers_of([":", "-->"], pieces, lambda text: split[text])
    assert found == {2: ((),), 4: ((5, 6), (6,)), 5: ((5, 6),), 7: ((5, 6),)}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(8))
def test_mirostat_leaves_llama_cpps_candidates_from_token_to_token(version: int, seed: int) -> None:
    """Its sampler draws; ours is told what it drew and must have the same probabilities, and so
    the same mu, twenty tokens long."""
    s = dataclasses.replace(
        OFF, temperature=0.9, mirostat=version, mirostat_tau=3.0, mirostat_eta=0.3
    )
    v = 400
    theirs = (
        c_api.llama_sampler_init_mirostat(v, seed, s.mirostat_tau, s.mirostat_eta, 100)
        if version == 1
        else c_api.llama_sampler_init_mirostat_v2(seed, s.mirostat_tau, s.mirostat_eta)
    )
    heat = c_api.llama_sampler_init_temp(s.temperature)
    process = LogitsProcessor(s, v)
    sizes = set()
    for place in range(20):
        array = candidates(row(100 * seed + place, v, 2.0))
        c_api.llama_sampler_apply(heat, ctypes.byref(array))
        c_api.llama_sampler_apply(theirs, ctypes.byref(array))
        p = process(row(100 * seed + place, v, 2.0), [])
        kept = {array.data[i].id: array.data[i].p for i in range(array.size)}
        assert set(p.ids.tolist()) == set(kept)
        for token, share in kept.items():
            assert p.probability(token) == pytest.approx(share, rel=2e-4)
        drawn = array.data[array.selected].id
        process = process.after(p, drawn)
        sizes.add(len(kept))
    assert len(sizes) > 3  # mu has moved
    c_api.llama_sampler_free(theirs)
    c_api.llama_sampler_free(heat)


def test_mirostat_moves_by_the_surprise_alone() -> None:
    s = dataclasses.replace(OFF, mirostat=2, mirostat_tau=2.01, mirostat_eta=0.5)
    assert mirostat_start(s) == 4.02
    logits = np.log(np.array([0.5, 0.25, 0.125, 0.0625, 0.0625], np.float32))
    process = LogitsProcessor(s, 5)
    assert process(logits, []).ids.tolist() == [0, 1, 2, 3, 4]  # all have 4 bits at most
    sure = process.after(one_hot(0), 0)  # no surprise: mu is 4 + 0.5 * 2
    assert sure(logits, []).ids.tolist() == [0, 1, 2, 3, 4]
    after = process.after(process(logits, []), 3)  # 4 bits: mu is 4 - 0.5 * 2
    assert after(logits, []).ids.tolist() == [0, 1, 2]
    assert process(logits, []).ids.tolist() == [0, 1, 2, 3, 4]  # the first one has not changed
    plain = LogitsProcessor(OFF, 5)
    assert plain.after(plain(logits, []), 3) is plain


def test_zipfs_cut_has_an_answer_for_degenerate_rows() -> None:
    assert zipf_cut(np.array([1.0]), 5.0, 100) == 1
    assert 1 <= zipf_cut(np.full(50, 0.02), 5.0, 100) <= 100
    assert zipf_cut(np.array([0.6, 0.3, 0.2]), 60.0, 100) == 100
    halves = np.array([1 / rank for rank in range(1, 30)])
    expected = 2**3 / math.log(1000)  # the limit of the exponent 1
    assert zipf_cut(halves / halves.sum(), 3.0, 1000) == int(expected)


def test_xtc_tosses_a_coin_of_the_position_alone() -> None:
    s = dataclasses.replace(OFF, xtc_probability=0.5, xtc_threshold=0.1)
    logits = np.log(np.array([0.6, 0.3, 0.1 - 1e-9, 1e-9], np.float32))
    process = LogitsProcessor(s, 4, noise=Noise(7))
    kept = [process(logits, [0] * n).ids.tolist() for n in range(400)]
    assert kept == [process(logits, [1] * n).ids.tolist() for n in range(400)]
    coins = [Noise(7).uniform(n, 0, Stream.EXCLUDE) <= 0.5 for n in range(400)]
    assert kept == [[1, 2, 3] if coin else [0, 1, 2, 3] for coin in coins]
    assert 150 < sum(coins) < 250


def test_xtc_without_the_noise_of_a_request_is_refused() -> None:
    with pytest.raises(ValueError, match="noise"):
        LogitsProcessor(Sampling(xtc_probability=0.5), V)


class _Allows:
    """A constraint of one mask."""

    def __init__(self, allowed: list[int]) -> None:
        bits = np.zeros(-(-V // 32) * 32, np.uint8)
        bits[allowed] = 1
        self._mask = TokenMask(np.packbits(bits, bitorder="little").view(np.uint32))

    def mask(self, before: object) -> TokenMask:
        return self._mask


def test_a_grammar_comes_first() -> None:
    """As `allowed_ids` has it: the samplers see the allowed tokens alone."""
    s = Sampling(typical_p=0.6, top_n_sigma=2.0, xtc_probability=ALWAYS, xtc_threshold=0.05)
    logits, allowed = row(4), list(range(0, V, 7))
    only = np.full(V, -np.inf, np.float32)
    only[allowed] = logits[allowed]
    masked = LogitsProcessor(s, V, _Allows(allowed), noise=Noise(1))(logits, [])
    free = LogitsProcessor(s, V, noise=Noise(1))(only, [])
    assert masked.ids.tolist() == free.ids.tolist()
    np.testing.assert_allclose(masked.probs, free.probs)


@pytest.mark.parametrize(
    ("given", "order"),
    [
        ("top_k;temperature", "top_k,temperature"),
        ("kt", "top_k,temperature"),
        ("edskypmxt", ",".join(Sampling().order)),
        (["typical_p", "Top-K", "nucleus", "temp"], "typ_p,top_k,top_p,temperature"),
        ("dry", "dry"),
        ("", ",".join(Sampling().order)),
        ("none", "none"),
        ([], "none"),
    ],
)
def test_samplers_are_named_as_llama_cpp_takes_them(given: Any, order: str) -> None:
    assert read_samplers(given) == order
    assert read_samplers(order) == order


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["tfs_z"], "no sampler called 'tfs_z'"),
        ("infill", "has no infill"),
        (["adaptive_p"], "has no adaptive_p"),
        ("ka", "has no adaptive_p"),
        ("temp", "name or letters; write temperature, or temperature,penalties,min_p,top_p"),
        (["top_k"] * 40, "32 is the most"),
        ("tyyy", "names typ_p 3 times; 2 is the most"),
        (["top_p", "nucleus", "top-p"], "names top_p 3 times"),
    ],
)
def test_unknown_samplers_are_refused_by_name(given: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_samplers(given)


def test_breakers_are_a_list_of_texts() -> None:
    assert read_breakers(["\n", "é"]) == '["\\n", "é"]'
    assert read_breakers('"\\n", ":"') == '["\\n", ":"]'
    assert Sampling().breakers == ("\n", ":", '"', "*")
    assert Sampling(dry_sequence_breakers="[]").breakers == ()
    for wrong in (":", '{"a": 1}', [""], ["x" * 41], [5], ["a"] * 65):
        with pytest.raises(UsageError, match="dry_sequence_breakers"):
            read_breakers(wrong)  # type: ignore[arg-type]


def test_kinds_of_sampling_tell_what_changes_acceptance() -> None:
    assert Sampling().kind == "0.8"
    assert Sampling(xtc_probability=0.1, dry_multiplier=1).kind == "0.8+dry+xtc"
    assert Sampling(temperature=0, dry_multiplier=1).kind == "greedy"
    assert Sampling(temperature=0, samplers="top_p").kind == "0.0"
    assert Sampling(temperature=0, dynatemp_range=0.3).kind == "0.0"
    assert Sampling(top_k=1, mirostat=2).kind == "0.8+mirostat"
