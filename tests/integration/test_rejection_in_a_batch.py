"""`rejection` on small real models in a batch: what four requests that share their passes say first
follows the distributions of `faults.by_the_papers`, on logits of plain decoding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from conftest import Files
from faults.by_the_papers import Plain
from frequencies import CERTAIN, FALSE_ALARM, looks, p_value_of
from replies import ENDLESS

from localspec import Options, Runtime, Sampling
from localspec.bench.lab import Lab
from localspec.core import kernel
from localspec.core.constraint import TokenMask
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.target import Work
from localspec.core.values import Draft, Logits, no_draft
from localspec.decode import verifiers
from localspec.decode.request import Request
from localspec.decode.round import decode_round, empty
from localspec.decode.verifiers import Rejection
from localspec.llama.team import team
from localspec.loading.loader import LoadedPair
from localspec.testing import Fixed

FEW = Sampling(temperature=1.2, top_k=4, top_p=1.0, min_p=0.0)
ALLOWED = frozenset(range(40, 120))
PROMPTS = tuple(np.random.default_rng(i).integers(5, 250, 6 + 5 * i).tolist() for i in range(4))
WISHES = (
    (FEW, None),
    (replace(FEW, repeat_penalty=1.6, presence_penalty=0.4), None),
    (replace(FEW, logit_bias=((70, 4.0), *ENDLESS), top_p=0.9), None),
    (FEW, ALLOWED),
)
TOKENS = 2


class Masked:
    """A grammar that allows the same tokens everywhere."""

    complete = True

    def __init__(self, n_vocab: int) -> None:
        bits = np.zeros(-(-n_vocab // 32) * 32, np.uint8)
        bits[sorted(ALLOWED)] = 1
        self._mask = TokenMask(np.packbits(bits, bitorder="little").view(np.uint32))

    def mask(self, before: Sequence[int]) -> TokenMask:
        return self._mask

    def forced(self, before: Sequence[int]) -> list[int]:
        return []

    def legal(self, before: Sequence[int], tokens: Sequence[int]) -> int:
        return len(tokens)

    def over(self, before: Sequence[int]) -> bool:
        return False

    def expect(self, before: Sequence[int], draft: Draft) -> None:
        pass

    def take(self, before: Sequence[int]) -> bool:
        return False

    def fits(self, before: Sequence[int], rest: str) -> bool:
        return True


def exact(pair: LoadedPair, at: int) -> Mapping[tuple[int, ...], float]:
    """Probabilities of the first tokens, by passes over one token each."""

    def table(tokens: Sequence[int]) -> Logits:
        pair.target.truncate(0, 0)
        pair.target.read(0, list(tokens[:-1]))
        (scores,) = pair.target.score([Work(0, tokens[-1], no_draft("test"))])
        row: Logits = scores.logits[0].copy()
        pair.target.keep(0, ())
        return row

    sampling, allowed = WISHES[at]
    rule = None if allowed is None else lambda _: allowed
    ends = frozenset[int]()
    return Plain(table, tuple(PROMPTS[at]), sampling, 0, TOKENS, ends, 1 << 20, rule).joint(TOKENS)


def p_values(pair: LoadedPair, runs: int) -> tuple[list[float], int, int]:
    """One of each request, of at most so many runs; and how many drafted tokens were accepted of
    how many.
    """
    right = [exact(pair, at) for at in range(len(WISHES))]
    pair.target.truncate(0, 0)
    seen = [Counter[tuple[int, ...]]() for _ in WISHES]
    accepted = verified = 0
    for seeds, enough, fewest in looks(runs):
        for seed in seeds:
            for counts, r in zip(seen, answered(pair, seed), strict=True):
                counts[tuple(item.token for item in r.emitted)] += 1
                accepted, verified = accepted + r.tally.accepted, verified + r.tally.verified
        pairs = zip(seen, right, strict=True)
        found = [p_value_of(counts.elements(), p, fewest) for counts, p in pairs]
        if min(found) > enough / len(found) or min(found) < CERTAIN:
            break
    for seq in range(len(WISHES)):
        empty(seq, pair.target, pair.drafter)
    return found, accepted, verified


def answered(pair: LoadedPair, seed: int) -> list[Request]:
    """All wishes, side by side, after prompts that are read once."""
    n_vocab, requests = pair.target_model.n_vocab, list[Request]()
    for seq, (sampling, allowed) in enumerate(WISHES):
        constraint = None if allowed is None else Masked(n_vocab)
        processor = LogitsProcessor(sampling, n_vocab, constraint)
        own = Noise(len(WISHES) * seed + seq), TOKENS
        prompt = list(PROMPTS[seq])
        requests.append(Request(seq, prompt, processor, *own, verifier=Rejection()))
        pair.target.truncate(seq, min(pair.target.length(seq), len(PROMPTS[seq]) - 1))
        pair.target.read(seq, PROMPTS[seq][pair.target.length(seq) : -1])
    while running := [r for r in requests if r.running]:
        decode_round(running, pair.target, pair.drafter, Fixed(3))
    assert all(r.error is None for r in requests)
    return requests


@pytest.fixture
def pair(files: Files, request: pytest.FixtureRequest) -> Iterator[LoadedPair]:
    threads = getattr(request, "param", 1)
    options = Options(
        str(files.target),
        str(files.draft),
        drafter=("model",),
        draft_max=3,
        verifier="rejection",
        parallel=len(WISHES),
        context=256,
        threads=threads,
    )
    with Runtime.open(options) as runtime:
        yield Lab(runtime).borrow()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_first_tokens_follow_the_target_closely(pair: LoadedPair) -> None:
    """The false-alarm rate of all four tests together is that of one elsewhere (Bonferroni)."""
    found, accepted, verified = p_values(pair, 3_000)
    assert 0 < accepted < verified
    assert min(found) > FALSE_ALARM / len(found)


@pytest.mark.slow
def test_a_residual_of_the_target_alone_is_found(
    pair: LoadedPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifiers, "residual", lambda p, _: p)
    found, _, _ = p_values(pair, 700)
    assert min(found) < 1e-9


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("pair", [2], indirect=True)
def test_rows_that_are_processed_together_follow_it_too(
    pair: LoadedPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`LogitsProcessor.ahead`: as many rows at a time as a pass has threads."""
    if kernel.loaded() is None or team(2) is None:
        pytest.skip("the kernel is not compiled, or llama.cpp computes without OpenMP")
    ahead, rows = LogitsProcessor.ahead, 0

    def counted(self: LogitsProcessor, some: Logits) -> object:
        nonlocal rows
        found = ahead(self, some)
        rows += len(found)
        return found

    monkeypatch.setattr(LogitsProcessor, "ahead", counted)
    runs = 300
    found, _, _ = p_values(pair, runs)
    assert rows >= 2 * min(len(seeds) for seeds, _, _ in looks(runs))
    assert min(found) > FALSE_ALARM / len(found)
