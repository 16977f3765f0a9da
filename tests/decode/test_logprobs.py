"""Logprobs of emitted tokens: the target's at each place, whoever drafted the token there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import tables
from ruled import Ruled, turns

from localspec.core.emitted import LogprobsMode, Origin, TokenLogprobs
from localspec.core.errors import NotNumbersError
from localspec.core.logits import GREEDY, LogitsProcessor, Sampling
from localspec.core.noise import Noise
from localspec.core.values import Logits
from localspec.decode.logprobs import TokenScorer
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.decode.verifiers import Match, Rejection, Verifier
from localspec.drafters.base import Drafter, GrammarDrafter, Off
from localspec.drafters.lookup.lookahead import Lookahead
from localspec.drafters.lookup.ngram import NGram
from localspec.drafters.lookup.suffix import Suffix
from localspec.policy.simple import Plain
from localspec.testing import Fixed, StopAt, TableTarget

V = 7
TABLE = tables.random_table(71, V)
DRAFT = tables.blend(TABLE, tables.random_table(72, V), 0.4)
VERIFIERS = (Match(), Rejection())


def scorer(top: int = 0, mode: LogprobsMode = "raw") -> TokenScorer:
    return TokenScorer(top, mode, str)


def log_softmax(row: Logits) -> np.ndarray:
    wide = row.astype(np.float64)
    return wide - wide.max() - math.log(np.exp(wide - wide.max()).sum())


def run(
    drafter: Drafter,
    verifier: Verifier,
    *,
    sampling: Sampling = tables.WARM,
    seed: int = 1,
    n: int = 30,
    mode: LogprobsMode = "raw",
    constraint: Ruled | None = None,
    broad: bool = False,
    beside: int = 0,
) -> Request:
    """A reply with logprobs; ``beside`` others run in the same passes."""
    target = TableTarget(TABLE)
    policy = tables.Broad() if broad else Fixed(3)
    requests = [
        Request(
            seq=i,
            tokens=list(tables.PROMPT),
            processor=LogitsProcessor(sampling, V, constraint if i == beside else None),
            noise=Noise(seed + beside - i),
            limit=n + beside - i,
            verifier=verifier,
            scorer=scorer(2, mode) if i == beside or i % 2 else None,
        )
        for i in range(1 + beside)
    ]
    for request in requests:
        target.read(request.seq, tables.PROMPT[:-1])
    running = requests
    while running := [request for request in running if request.running]:
        decode_round(running, target, drafter, policy)
    for request in requests:
        assert request.error is None
        given = [item.logprobs is not None for item in request.emitted]
        assert all(given) if request.scorer else not any(given)
    return requests[beside]


def drafters() -> dict[str, Drafter]:
    shapes = {name: tables.shaped_drafter(name, DRAFT) for name in tables.SHAPES}
    return {
        **shapes,
        "suffix": Suffix(),
        "ngram": NGram(),
        "grammar": GrammarDrafter(),
        "off": Off(),
    }


def check(request: Request, mode: LogprobsMode) -> None:
    """Every place has the target's own logprobs given the tokens before it."""
    processor = request.processor
    start = len(request.tokens) - len(request.emitted)
    for i, item in enumerate(request.emitted, start):
        before = request.tokens[:i]
        if mode == "raw":
            right = log_softmax(TABLE(before))
        else:
            p = processor(TABLE(before), before)
            right = np.full(V, -np.inf)
            right[p.ids] = np.log(p.probs)
        place = item.logprobs
        assert place is not None
        assert place.chosen.token == item.token
        assert place.chosen.text == str(item.token)
        assert place.chosen.logprob == pytest.approx(right[item.token], abs=2e-6)
        best = np.argsort(-right, kind="stable")[: min(2, np.isfinite(right).sum())]
        assert [one.token for one in place.top] == best.tolist()
        assert [one.logprob for one in place.top] == pytest.approx(right[best], abs=2e-6)


@pytest.mark.parametrize("mode", ["raw", "processed"])
@pytest.mark.parametrize("verifier", VERIFIERS, ids=lambda v: v.name)
@pytest.mark.parametrize("name", [*tables.SHAPES, "suffix", "ngram", "off"])
def test_each_token_has_the_logprobs_of_its_place(
    name: str, verifier: Verifier, mode: LogprobsMode
) -> None:
    drafter = drafters()[name]
    if getattr(drafter, "proposal", None) not in {None, *verifier.proposals}:
        return  # refused by the round
    warm = Sampling(temperature=0.8, top_k=5, top_p=0.95, repeat_penalty=1.2)
    accepted = 0
    for sampling in (tables.WARM, warm, GREEDY):
        found = run(drafter, verifier, sampling=sampling, mode=mode)
        check(found, mode)
        accepted += found.tally.accepted
    assert accepted or name == "off"


@pytest.mark.parametrize("mode", ["raw", "processed"])
def test_a_lookahead_window_and_trees_of_heads_have_them_too(mode: LogprobsMode) -> None:
    for drafter in (Lookahead(), tables.growing(DRAFT, Match().favours)):
        request = run(drafter, Match(), sampling=tables.WARM, mode=mode, broad=True, n=60)
        check(request, mode)
        assert request.tally.drafted > 0


def places(request: Request) -> list[TokenLogprobs | None]:
    return [item.logprobs for item in request.emitted]


@pytest.mark.parametrize("others", [1, 3, 7])
@pytest.mark.parametrize("name", ["argmax chain", "coupled chain", "suffix"])
def test_under_match_they_are_bit_for_bit_those_of_plain_decoding_alone(
    name: str, others: int
) -> None:
    for sampling in (tables.WARM, GREEDY):
        plain = run(Off(), Match(), sampling=sampling)
        drafted = run(drafters()[name], Match(), sampling=sampling, beside=others)
        assert drafted.tokens == plain.tokens
        assert places(drafted) == places(plain)


@pytest.mark.parametrize("mode", ["raw", "processed"])
def test_forced_tokens_are_scored_like_all_others(mode: LogprobsMode) -> None:
    constraint = Ruled(turns, len(tables.PROMPT))
    request = run(GrammarDrafter(), Match(), mode=mode, constraint=constraint)
    check(request, mode)
    forced = [e.logprobs for e in request.emitted if e.origin is Origin.ACCEPTED]
    assert forced
    if mode == "processed":
        assert {place.chosen.logprob for place in forced if place} == {0.0}


def test_a_reply_that_ends_inside_an_accepted_run_has_no_more_than_its_tokens() -> None:
    for end in range(V):
        target = TableTarget(TABLE)
        target.read(0, tables.PROMPT[:-1])
        request = Request(
            seq=0,
            tokens=list(tables.PROMPT),
            processor=LogitsProcessor(GREEDY, V),
            noise=Noise(1),
            limit=30,
            stop=StopAt(end, ahead=False),
            scorer=scorer(2),
        )
        while request.running:
            decode_round([request], target, tables.shaped_drafter("argmax chain", TABLE), Fixed(6))
        check(request, "raw")


def test_a_row_that_is_no_number_ends_its_request_alone() -> None:
    def table(tokens: Sequence[int]) -> Logits:
        row = TABLE(tokens).copy()
        row[0] = np.nan if len(tokens) > 4 else row[0]
        return row

    target = TableTarget(table)
    target.read(0, tables.PROMPT[:-1])
    only_two = Ruled(lambda _: {1, 2}, len(tables.PROMPT))  # the mask hides the place of the NaN
    request = Request(
        seq=0,
        tokens=list(tables.PROMPT),
        processor=LogitsProcessor(GREEDY, V, only_two),
        noise=Noise(1),
        limit=30,
        scorer=scorer(),
    )
    while request.running:
        decode_round([request], target, Off(), Plain("test"))
    assert isinstance(request.error, NotNumbersError)


@pytest.mark.parametrize("v", [5, 300, 4096, 152_064])
def test_large_rows_agree_with_double_precision(v: int) -> None:
    rows = np.random.default_rng(v).normal(0, 6, (3, v)).astype(np.float32)
    rows[1, : v // 2] = -np.inf
    rows[2] *= 20
    made = scorer(20)
    for row in rows:
        right = log_softmax(row)
        place = made.scored(row, v - 1)
        best = np.argsort(-right, kind="stable")[: min(20, np.isfinite(right).sum())]
        assert [one.token for one in place.top] == best.tolist()
        assert [one.logprob for one in place.top] == pytest.approx(right[best], abs=1e-5)
        assert place.chosen.logprob == pytest.approx(right[-1], abs=1e-5)


def test_a_row_gives_the_same_bits_wherever_it_lies_in_memory() -> None:
    row = np.random.default_rng(5).normal(0, 3, 32_003).astype(np.float32)
    found = set()
    for shift in range(17):
        room = np.empty(len(row) + 17, np.float32)
        room[shift : shift + len(row)] = row
        found.add(scorer().scored(room[shift : shift + len(row)], 7).chosen.logprob)
    assert len(found) == 1
