"""Drafters with logits that are not numbers, and with a bias that leaves them nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tables
from tables import TableModel

from localspec.core.errors import NothingAllowedError, NotNumbersError, UsageError
from localspec.core.logits import GREEDY, LogitsProcessor, Sampling
from localspec.core.noise import Noise
from localspec.core.plan import Budget
from localspec.core.values import Logits, Proposal, Tokens
from localspec.drafters.base import Ask, Drafter
from localspec.drafters.heads.head_drafter import ForwardOnlyDrafter
from localspec.drafters.model.chain import ChainDrafter

V = 8
TABLE = tables.random_table(5, v=V)
TEXT = [1, 2, 3, 4]
EVERYTHING = tuple((token, -math.inf) for token in range(V))


def no_numbers(tokens: Tokens) -> Logits:
    return np.full(V, np.nan, np.float32)


def ask(sampling: Sampling, *, probe: bool = False, leaves: int = 1) -> Ask:
    budget = Budget(0, 0, 0) if probe else Budget(nodes=6, depth=3, leaves=leaves)
    return Ask(0, TEXT, budget, Noise(0), LogitsProcessor(sampling, V), probe=probe, prompt=1)


def drafters(table: tables.Table) -> dict[str, Drafter]:
    return {
        "chain": ChainDrafter(TableModel(table), Proposal.COUPLED),
        "foreseeing": ForwardOnlyDrafter(TableModel(table), Proposal.COUPLED, "dflash"),
        "tree": tables.branching(table, Proposal.COUPLED),
        "head tree": tables.growing(table, Proposal.COUPLED),
    }


KINDS = [*drafters(TABLE)]


@pytest.mark.parametrize("probe", [False, True])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(), Sampling(top_k=0)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_request_that_forbids_all_tokens_ends_no_drafter(
    kind: str, sampling: Sampling, probe: bool
) -> None:
    banned = Sampling(temperature=sampling.temperature, top_k=sampling.top_k, logit_bias=EVERYTHING)
    drafter = drafters(TABLE)[kind]
    (draft,) = drafter.propose([ask(banned, probe=probe, leaves=3)])
    assert not len(draft)
    assert drafter.problem is None
    drafter.close(0)
    (draft,) = drafter.propose([ask(sampling, leaves=3)])
    assert len(draft)


@pytest.mark.parametrize("kind", ["chain", "foreseeing"])
def test_a_parked_drafter_without_numbers_drafts_no_more_and_harms_no_reply(kind: str) -> None:
    drafter = drafters(no_numbers)[kind]
    (draft,) = drafter.propose([ask(GREEDY, probe=True)])
    assert not len(draft)
    assert "not numbers" in drafter.problem
    assert not len(drafter.propose([ask(GREEDY, probe=True)])[0])


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(), Sampling(top_k=0)])
def test_a_bias_that_forbids_everything_is_told_from_a_damaged_file(sampling: Sampling) -> None:
    banned = Sampling(temperature=sampling.temperature, top_k=sampling.top_k, logit_bias=EVERYTHING)
    with pytest.raises(NothingAllowedError, match="forbids every token"):
        LogitsProcessor(banned, V)(TABLE(TEXT), [])
    with pytest.raises(NotNumbersError):
        LogitsProcessor(banned, V)(no_numbers(TEXT), [])


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e39, -1e39])
def test_a_bias_that_is_no_number_of_32_bits_is_refused(value: float) -> None:
    with pytest.raises(UsageError, match="logit bias of token 7"):
        Sampling(logit_bias=((3, -math.inf), (7, value)))
