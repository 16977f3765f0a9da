"""`match` gives token for token what plain decoding gives, whatever is drafted."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import tables

from localspec.core.logits import Sampling
from localspec.core.values import Proposal
from localspec.decode.verifiers import Match
from localspec.drafters.base import Off
from localspec.drafters.cascade import Cascade
from localspec.drafters.lookup.ngram import NGram
from localspec.drafters.lookup.suffix import Suffix
from localspec.drafters.model.chain import ChainDrafter
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.storage import Knowledge
from localspec.testing import Fixed, TableModel

SEEDS = range(30)
TOKENS = 24
"""One case finds a mistake in one token of 150 with 99 %: 1 - (1 - 1/150)^720."""
TARGET = tables.random_table(1, v=5)
DRAFT = tables.blend(TARGET, tables.random_table(2, v=5), 0.4)
SETTINGS = {
    "greedy": Sampling(temperature=0),
    "warm": tables.WARM,
    "truncated": Sampling(temperature=0.8, top_k=3, top_p=0.9, min_p=0.05),
    "penalised": dataclasses.replace(tables.WARM, repeat_penalty=1.3, presence_penalty=0.2),
}


@functools.cache
def plain(seed: int, sampling: Sampling) -> list[int]:
    return tables.decode(TARGET, Off(), Match(), seed, TOKENS, sampling=sampling)


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("shape", tables.SHAPES)
def test_every_shape_of_draft_leaves_the_text_alone(shape: str, setting: str) -> None:
    sampling = SETTINGS[setting]
    drafter = tables.shaped_drafter(shape, DRAFT)
    for seed in SEEDS:
        drafted = tables.decode(TARGET, drafter, Match(), seed, TOKENS, sampling=sampling)
        assert drafted == plain(seed, sampling)


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(
    "kind", ["model coupled", "model sampled", "ngram", "suffix", "tree", "cascade"]
)
def test_every_drafter_leaves_the_text_alone(kind: str, setting: str) -> None:
    sampling = SETTINGS[setting]
    for seed in SEEDS:
        coupled = ChainDrafter(TableModel(DRAFT), Proposal.COUPLED)
        drafter = {
            "model coupled": coupled,
            "model sampled": ChainDrafter(TableModel(DRAFT), Proposal.SAMPLED),
            "ngram": NGram(1, 3),
            "suffix": Suffix(),
            "tree": tables.branching(DRAFT, Proposal.COUPLED),
            "cascade": Cascade([NGram(2, 4), coupled]),
        }[kind]
        policy = tables.Broad() if kind == "tree" else None
        drafted = tables.decode(
            TARGET, drafter, Match(), seed, TOKENS, sampling=sampling, policy=policy
        )
        assert drafted == plain(seed, sampling)


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_draft_length_leaves_the_text_alone(k: int) -> None:
    for seed in SEEDS:
        drafter = ChainDrafter(TableModel(DRAFT), Proposal.COUPLED)
        drafted = tables.decode(TARGET, drafter, Match(), seed, TOKENS, policy=Fixed(k))
        assert drafted == plain(seed, tables.WARM)


def test_the_automatic_policy_leaves_the_text_alone() -> None:
    for seed in SEEDS:
        drafter = ChainDrafter(TableModel(DRAFT), Proposal.COUPLED)
        policy = Controller(Knowledge({0: Costs({1: 1.0, 4: 1.2, 8: 1.6})}), [drafter.name])
        drafted = tables.decode(TARGET, drafter, Match(), seed, TOKENS, policy=policy)
        assert drafted == plain(seed, tables.WARM)


def test_a_perfect_coupled_draft_is_always_accepted() -> None:
    """q equal to p and the same noise: only the limit of the reply may cut a draft short."""
    for seed in SEEDS:
        target = tables.TableTarget(TARGET)
        target.read(0, tables.PROMPT[:-1])
        request = tables.Request(
            0,
            list(tables.PROMPT),
            tables.LogitsProcessor(tables.WARM, 5),
            tables.Noise(seed),
            TOKENS,
        )
        drafter = ChainDrafter(TableModel(TARGET), Proposal.COUPLED)
        while request.running:
            tables.decode_round([request], target, drafter, Fixed(3))
        assert request.tally.accepted == request.tally.verified == request.tally.drafted
