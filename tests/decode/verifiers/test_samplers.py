"""llama.cpp's further samplers under speculation: `match` gives the text of plain decoding,
`rejection` the exact distribution, and a rejected draft moves neither XTC's coin nor Mirostat's mu.

The chi-squared tests have a false-alarm rate of 1e-4 each (`frequencies.FALSE_ALARM`): that of a
correct program failing when the seeds are changed. They look at a quarter and a half of the draws
first (`frequencies.LOOKS`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math

import numpy as np
import pytest
import tables
from frequencies import FALSE_ALARM, p_value_by_looks
from ruled import turns

from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.noise import Noise
from localspec.decode.logprobs import TokenScorer
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.decode.verifiers import Match, Rejection, Verifier
from localspec.drafters.base import Drafter, Off
from localspec.drafters.lookup.ngram import NGram
from localspec.drafters.lookup.suffix import Suffix
from localspec.drafters.model.chain import ChainDrafter
from localspec.drafters.model.tree import Trees
from localspec.testing import Fixed, Table, TableModel, TableTarget

V, TOKENS, SEEDS = 5, 24, range(12)
TARGET = tables.random_table(1, v=V)
DRAFT = tables.blend(TARGET, tables.random_table(2, v=V), 0.4)
BREAKERS = {4: ((),), 2: ((3,),)}
WARM = tables.WARM
SETTINGS = {
    "dry": dataclasses.replace(WARM, dry_multiplier=2.0, dry_allowed_length=1),
    "dry, cold": Sampling(temperature=0, dry_multiplier=2.0, dry_allowed_length=1),
    "xtc": dataclasses.replace(WARM, xtc_probability=0.5, xtc_threshold=0.15),
    "xtc, cold": Sampling(temperature=0, xtc_probability=0.5, xtc_threshold=0.15),
    "typical": dataclasses.replace(WARM, typical_p=0.6),
    "sigma": dataclasses.replace(WARM, top_n_sigma=1.8),
    "dynamic": dataclasses.replace(WARM, temperature=0.9, dynatemp_range=0.8),
    "mirostat 1": dataclasses.replace(WARM, mirostat=1, mirostat_tau=1.2, mirostat_eta=0.6),
    "mirostat 2": dataclasses.replace(WARM, mirostat=2, mirostat_tau=1.2, mirostat_eta=0.6),
    "an order": dataclasses.replace(
        WARM,
        temperature=0.8,
        presence_penalty=0.4,
        min_p=0.1,
        samplers="temperature,penalties,min_p",
    ),
    "all": dataclasses.replace(
        WARM,
        dry_multiplier=1.0,
        dry_allowed_length=1,
        xtc_probability=0.4,
        typical_p=0.9,
        top_n_sigma=1.5,
        dynatemp_range=0.3,
    ),
}


def drafters(table: Table) -> dict[str, tuple[Drafter, object]]:
    proposals = tables.Proposal
    return {
        "model": (ChainDrafter(TableModel(table), proposals.COUPLED), None),
        "sampled": (ChainDrafter(TableModel(table), proposals.SAMPLED), None),
        "ngram": (NGram(1, 3), None),
        "suffix": (Suffix(), None),
        "tree": (tables.branching(table, proposals.COUPLED), tables.Broad()),
        "distinct tree": (tables.shaped_drafter("distinct tree", table), None),
        "top-2 tree": (tables.shaped_drafter("top-2 tree", table), None),
    }


@functools.cache
def plain_text(sampling: Sampling, seed: int) -> list[int]:
    return tables.decode(TARGET, Off(), Match(), seed, TOKENS, sampling=sampling, breakers=BREAKERS)


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("kind", drafters(DRAFT))
def test_a_drafted_text_is_the_plain_one(kind: str, setting: str) -> None:
    sampling = SETTINGS[setting]
    for seed in SEEDS:
        drafter, policy = drafters(DRAFT)[kind]
        drafted = tables.decode(
            TARGET,
            drafter,
            Match(),
            seed,
            TOKENS,
            sampling=sampling,
            policy=policy,
            breakers=BREAKERS,
        )
        assert drafted == plain_text(sampling, seed)


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_drafted_text_is_the_plain_one_under_a_grammar(setting: str) -> None:
    table, sampling = tables.random_table(3, v=4), SETTINGS[setting]
    for seed in SEEDS:
        plain, drafted = (
            tables.decode(
                table, one, Match(), seed, 16, sampling=sampling, rule=turns, breakers=BREAKERS
            )
            for one in (Off(), ChainDrafter(TableModel(table), tables.Proposal.COUPLED))
        )
        assert drafted == plain


def test_the_settings_change_the_text() -> None:
    """Else the laws above would say nothing."""
    texts = [
        [tables.decode(TARGET, Off(), Match(), seed, TOKENS, sampling=s) for seed in range(5)]
        for s in (WARM, *SETTINGS.values())
    ]
    assert all(a != b for a, b in itertools.combinations(texts, 2))


def request(
    seq: int, sampling: Sampling, verifier: Verifier, seed: int, n: int = TOKENS, **more: object
) -> Request:
    noise = Noise(seed)
    processor = LogitsProcessor(sampling, V, noise=noise, breakers=BREAKERS)
    return Request(seq, list(tables.PROMPT), processor, noise, n, verifier=verifier, **more)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["model", "suffix"])
def test_requests_with_other_samplers_side_by_side_get_what_they_get_alone(kind: str) -> None:
    for seed in range(4):
        drafter, _ = drafters(DRAFT)[kind]
        target = TableTarget(TARGET, sequences=len(SETTINGS) + 1)
        requests = [request(i, s, Match(), seed) for i, s in enumerate((WARM, *SETTINGS.values()))]
        for one in requests:
            target.read(one.seq, tables.PROMPT[:-1])
        while running := [one for one in requests if one.running]:
            decode_round(running, target, drafter, Fixed(3))
        for one, sampling in zip(requests, (WARM, *SETTINGS.values()), strict=True):
            assert one.error is None
            assert [e.token for e in one.emitted] == plain_text(sampling, seed)


SMALL = tables.random_table(11, v=3, sharpness=1.0)
SMALL_DRAFT = tables.blend(SMALL, tables.random_table(12, v=3, sharpness=1.0), 0.7)


def exact(sampling: Sampling, n: int) -> dict[tuple[int, ...], float]:
    """The probability of every first n tokens: by enumeration, XTC's coin over both of its sides,
    and mu along each text.
    """
    coins = [(1.0, sampling)]
    if sampling.excludes:
        coin = sampling.xtc_probability
        coins = [
            (coin, dataclasses.replace(sampling, xtc_probability=1.0)),
            (1 - coin, dataclasses.replace(sampling, xtc_probability=0.0)),
        ]
    found: dict[tuple[int, ...], float] = {}

    def walk(text: tuple[int, ...], mass: float, processors: list[LogitsProcessor]) -> None:
        if len(text) == n:
            found[text] = mass
            return
        past = [*tables.PROMPT, *text]
        ps = [process(SMALL(past), past) for process in processors]
        for token in range(3):
            chances = [p.probability(token) for p in ps]
            share = sum(c * w for c, (w, _) in zip(chances, coins, strict=True))
            if share:
                after = [
                    process.after(p, token) if process.moves else process
                    for process, p in zip(processors, ps, strict=True)
                ]
                walk((*text, token), mass * share, after)

    walk((), 1.0, [LogitsProcessor(s, 3, noise=Noise(0), breakers=BREAKERS) for _, s in coins])
    return found


WARM_ONES = [name for name in SETTINGS if "cold" not in name]


def chance(kind: str, setting: str, runs: int, n: int) -> float:
    """p-value of the hypothesis that the first n tokens follow the exact distribution."""
    sampling = SETTINGS[setting]
    drafter, policy = drafters(SMALL_DRAFT)[kind]
    if kind == "tree":
        drafter = tables.branching(SMALL_DRAFT, tables.Proposal.SAMPLED)

    def said(seed: int) -> tuple[int, ...]:
        if isinstance(drafter, ChainDrafter | Trees):  # what it read was another request's
            drafter.close(0)
        return tuple(
            tables.decode(
                SMALL,
                drafter,
                Rejection(),
                seed,
                n,
                sampling=sampling,
                policy=policy,
                breakers=BREAKERS,
            )
        )

    return p_value_by_looks(said, exact(sampling, n), runs)


DRAWN = [
    *(("sampled", setting) for setting in WARM_ONES),
    # What depends on a draft's form too: the text that a row is told, XTC's coin at its place, and
    # the mu of its branch. The other samplers are functions of a row.
    *itertools.product(("tree", "distinct tree", "suffix"), ("dry", "xtc", "mirostat 2")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "setting"), DRAWN)
def test_rejection_follows_the_exact_distribution_closely(kind: str, setting: str) -> None:
    """An error of 29 % of each probability, as a mean square, is found nine times in ten."""
    assert chance(kind, setting, 1_400, 4) > FALSE_ALARM


@pytest.mark.slow
def test_the_frequency_test_sees_a_mu_that_a_rejected_draft_moved() -> None:
    """Negative control: every drafted token, accepted or not, moves mu on."""
    sampling = SETTINGS["mirostat 2"]

    def said(seed: int) -> tuple[int, ...]:
        target = TableTarget(SMALL)
        target.read(0, tables.PROMPT[:-1])
        one = request(0, sampling, Rejection(), seed, 4)
        drafter = ChainDrafter(TableModel(SMALL_DRAFT), tables.Proposal.SAMPLED)
        while one.running:
            (result,) = decode_round([one], target, drafter, Fixed(3))
            for token in result.draft.tokens[len(result.verdict.path) :].tolist():
                p = one.processor(SMALL(one.tokens), one.tokens)
                if p.probability(token):
                    one.processor = one.processor.after(p, token)
        return tuple(e.token for e in one.emitted)

    assert p_value_by_looks(said, exact(sampling, 4), 1500) < 1e-6


@pytest.mark.parametrize("verifier", [Match(), Rejection()], ids=["match", "rejection"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_logprobs_are_the_targets_raw_and_processed(setting: str, verifier: Verifier) -> None:
    """At every place, replayed without drafts: log-softmax of the row, or log p after it all."""
    sampling = SETTINGS[setting]
    for mode in ("raw", "processed"):
        target = TableTarget(TARGET)
        target.read(0, tables.PROMPT[:-1])
        one = request(0, sampling, verifier, 5, scorer=TokenScorer(2, mode, str))
        proposal = tables.Proposal.SAMPLED
        while one.running:
            decode_round([one], target, ChainDrafter(TableModel(DRAFT), proposal), Fixed(3))
        process = LogitsProcessor(sampling, V, noise=Noise(5), breakers=BREAKERS)
        for i, emitted in enumerate(one.emitted):
            past = one.tokens[: len(tables.PROMPT) + i]
            row = TARGET(past).astype(np.float64)
            p = process(TARGET(past), past)
            process = process.after(p, emitted.token)
            raw = row[emitted.token] - row.max() - math.log(np.exp(row - row.max()).sum())
            wanted = raw if mode == "raw" else math.log(p.probability(emitted.token))
            assert emitted.logprobs is not None
            assert emitted.logprobs.chosen.logprob == pytest.approx(wanted, abs=1e-5)
