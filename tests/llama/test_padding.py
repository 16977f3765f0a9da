"""A pass over one sequence that is padded to a wider one, because that is quicker here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import memory_files
import numpy as np
import pytest

from localspec.core.logits import GREEDY, LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.plan import ANY, Budget, DraftPlan, DraftStep, RequestState
from localspec.core.values import Draft, Proposal, chain_parents, no_draft
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.drafters.base import Ask, Drafter, Off
from localspec.llama.context import Context
from localspec.llama.limits import ROLLBACK
from localspec.llama.model import Model
from localspec.llama.pass_shapes import pads_alone
from localspec.llama.target import LlamaTarget
from localspec.policy.controller import WIDE
from localspec.policy.simple import Plain
from localspec.testing import Fixed

PADDED = ("full", "latent")
"""Kinds of memory in which rows of padding leave no trace."""
PROMPT = np.random.default_rng(0).integers(3, 250, 20).tolist()
WIDER = (1, 4, 4, 4, 6, 6)


@pytest.fixture(params=memory_files.KINDS, scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path: Path = tmp_path_factory.mktemp("kinds") / f"{kind}.gguf"
    made = Model(memory_files.KINDS[kind](path))
    yield made
    made.close()


class HalfRight(Drafter):
    """Drafts 1 to 5 tokens, of which the second half is wrong in two of three rounds."""

    name = "half right"

    def __init__(self, text: Sequence[int]) -> None:
        self._text = text

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._one(ask) for ask in asks]

    def _one(self, ask: Ask) -> Draft:
        n = min(1 + ask.position % 5, ask.budget.depth)
        tokens = [*self._text[ask.position : ask.position + n]]
        if ask.position % 3:
            tokens[n // 2 :] = [(token + 1) % 250 for token in tokens[n // 2 :]]
        if not tokens:
            return no_draft(self.name)
        ids = np.array(tokens, np.int32)
        return Draft(ids, chain_parents(len(ids)), Proposal.DETERMINISTIC, None, self.name)


class Wider(Fixed):
    """Wants passes of these widths, and remembers those that were computed."""

    def __init__(self) -> None:
        super().__init__(5)
        self.computed: list[tuple[int, int]] = []

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        return [DraftPlan((DraftStep(ANY, Budget.chain(5)),), WIDER) for _ in states]

    def learn(self, outcomes, evidence) -> None:
        self.computed += [(1 + o.proposed, o.width) for o in outcomes]


def reply(model: Model, drafter: Drafter, policy, tokens: int, n_ctx: int = 128) -> list[int]:
    context = Context(model, n_ctx=n_ctx, n_batch=64, rollback=ROLLBACK, threads=1)
    target = LlamaTarget(context)
    target.read(0, PROMPT[:-1])
    request = Request(0, list(PROMPT), LogitsProcessor(GREEDY, 300), Noise(0), tokens)
    while request.running:
        decode_round([request], target, drafter, policy)  # audits the cache
        assert request.error is not None or context.length(0) <= len(request.tokens) - 1
    context.close()
    return request.tokens


def test_a_padded_reply_is_that_of_plain_decoding(model: Model, kind: str) -> None:
    right = reply(model, Off(), Plain("test"), 40)
    policy = Wider()
    assert reply(model, HalfRight([*right, *[7] * 9]), policy, 40) == right
    wanted = {(n, WIDER[n - 1]) for n, _ in policy.computed}
    assert len(wanted) > 3
    if kind in PADDED:
        assert {*policy.computed} == wanted
    else:
        assert all(n == width for n, width in policy.computed)


class Looking(Wider):
    """Widens plain passes to four rows, to see what these cost."""

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        return [DraftPlan((), WIDE if s.emitted % 2 else ()) for s in states]


def test_a_plain_pass_that_is_widened_changes_no_token(model: Model) -> None:
    right = reply(model, Off(), Plain("test"), 40)
    policy = Looking()
    assert reply(model, Off(), policy, 40) == right
    assert {*policy.computed} == {(1, 1), (1, 4)}


def test_what_the_policy_reckons_with_is_what_the_target_does(model: Model, kind: str) -> None:
    context = Context(model, n_ctx=64, n_batch=64, rollback=ROLLBACK, threads=1)
    assert pads_alone(context, hidden=False) is (kind in PADDED)
    assert not pads_alone(context, hidden=True)
    context.close()


def test_nothing_is_padded_beyond_the_end_of_the_context(model: Model, kind: str) -> None:
    context = Context(model, n_ctx=64, n_batch=64, rollback=ROLLBACK, threads=1)
    capacity = context.capacity
    context.close()
    n = capacity - len(PROMPT) + 1
    right = reply(model, Off(), Plain("test"), n, n_ctx=64)
    policy = Wider()
    assert reply(model, HalfRight([*right, *[7] * 9]), policy, n, n_ctx=64) == right
    assert len(right) == capacity + 1
    if kind in PADDED:
        assert any(n < width for n, width in policy.computed)
