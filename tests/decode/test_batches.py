"""Requests of one round that differ in everything: each gets what it would have got alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import tables

from localspec.core.errors import (
    ContextFullError,
    LocalspecError,
    NothingAllowedError,
    NotNumbersError,
    ProposalError,
)
from localspec.core.events import Speculation
from localspec.core.logits import GREEDY, LogitsProcessor, Sampling
from localspec.core.noise import Noise
from localspec.core.plan import DraftPlan, Evidence, Outcome, RequestState
from localspec.core.values import Draft, Logits, Proposal, Tokens, chain_parents
from localspec.decode.request import NEVER, DraftRules, Request, StopRule
from localspec.decode.round import decode_round
from localspec.decode.verifiers import Match, Rejection, Verifier
from localspec.drafters.base import Ask, Drafter
from localspec.drafters.cascade import Cascade
from localspec.drafters.lookup.suffix import Suffix
from localspec.drafters.model.chain import ChainDrafter
from localspec.policy import Policy
from localspec.policy.simple import Plain
from localspec.testing import Fixed, StopAt, TableModel, TableTarget

V = 9
TABLE = tables.random_table(41, v=V)
DRAFT = tables.blend(TABLE, tables.random_table(42, v=V), 0.3)
BAN = Sampling(temperature=1.0, logit_bias=tuple((i, float("-inf")) for i in range(V)))


@dataclass(frozen=True)
class Wish:
    """A request, to be made as often as it is run."""

    prompt: tuple[int, ...]
    seed: int
    sampling: Sampling = tables.WARM
    verifier: Verifier = field(default_factory=Match)
    stop: StopRule = NEVER
    limit: int = 25
    policy: Policy | None = None

    def request(self, seq: int) -> Request:
        return Request(
            seq,
            list(self.prompt),
            LogitsProcessor(self.sampling, V),
            Noise(self.seed),
            self.limit,
            self.stop,
            self.verifier,
            self.policy,
        )


WISHES = (
    Wish((0, 1, 2, 3), 1),
    Wish((5, 1), 2, sampling=GREEDY),
    Wish((3, 3, 4), 3, verifier=Rejection()),
    Wish((8, 7, 6), 4, stop=StopAt(4)),
    Wish((2, 0), 5, limit=7, policy=Plain("asked for")),
    Wish((1, 2, 1, 2), 6, sampling=Sampling(temperature=0.7, top_k=4, repeat_penalty=1.3)),
    Wish((4, 4), 7, verifier=Rejection(), policy=Fixed(1)),
)


class House:
    """A target and drafters for all."""

    def __init__(self, capacity: int = 1000) -> None:
        self.target = TableTarget(TABLE, capacity=capacity)
        model = ChainDrafter(TableModel(DRAFT), Proposal.COUPLED)
        self.drafter = Cascade([Suffix(2), model])

    def begin(self, wish: Wish, seq: int) -> Request:
        self.target.truncate(seq, 0)
        self.target.read(seq, wish.prompt[:-1])
        return wish.request(seq)

    def round(self, requests: Sequence[Request]) -> list[Request]:
        decode_round(requests, self.target, self.drafter, Fixed(4))
        return [r for r in requests if r.running]


def alone(wish: Wish) -> list[int]:
    house = House()
    running = [house.begin(wish, 0)]
    (request,) = running
    while running:
        running = house.round(running)
    assert request.error is None
    return request.tokens


@pytest.mark.parametrize("turn", range(4))
def test_requests_that_differ_in_all_get_the_same_as_alone(turn: int) -> None:
    """They join one after the other, and a sequence that is free again is used again."""
    house = House()
    waiting = [*WISHES[turn:], *WISHES[:turn], *WISHES]
    running: list[Request] = []
    made: list[tuple[Wish, Request]] = []
    while waiting or running:
        free = [i for i in range(5) if all(r.seq != i for r in running)]
        if waiting and free:
            wish = waiting.pop(0)
            running.append(house.begin(wish, free[0]))
            made.append((wish, running[-1]))
        running = house.round(running)
    assert sum(r.tally.accepted for _, r in made) > 0
    for wish, request in made:
        if wish.verifier.name == "match":  # rejection promises a distribution, not a text
            assert request.tokens == alone(wish)
        assert request.error is None


def test_a_request_without_drafts_does_not_keep_the_others_from_drafting() -> None:
    house = House()
    running = [house.begin(wish, seq) for seq, wish in enumerate(WISHES)]
    requests = running
    while running:
        running = house.round(running)
    for wish, request in zip(WISHES, requests, strict=True):
        if isinstance(wish.policy, Plain):
            assert request.tally.drafted == 0
        else:
            assert request.tally.drafted > 0


class Careless(Drafter):
    """Proposes coupled tokens to everyone."""

    name = "careless"

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [
            Draft(np.array([1], np.int32), chain_parents(1), Proposal.COUPLED, None, self.name)
            for _ in asks
        ]


class Spoilt(TableTarget):
    """Says what is no number after the tokens 8, 8."""

    def __init__(self) -> None:
        def table(tokens: Tokens) -> Logits:
            spoilt = [*tokens[-2:]] == [8, 8]
            return np.full(V, np.nan, np.float32) if spoilt else TABLE(tokens)

        super().__init__(table, capacity=40)


FAILING = {
    "no numbers": (Wish((8, 8), 9), NotNumbersError),
    "all forbidden": (Wish((0, 1), 9, sampling=BAN), NothingAllowedError),
    "full": (Wish(tuple(range(8)) * 5, 9, limit=100), ContextFullError),
    "inexact": (Wish((1, 2), 9, verifier=Rejection()), ProposalError),
}


@pytest.mark.parametrize("reason", FAILING)
def test_a_request_that_fails_ends_alone(reason: str) -> None:
    wish, kind = FAILING[reason]
    house = House()
    house.target = Spoilt()
    if reason == "inexact":
        house.drafter = Careless()
    fine = [Wish((0, 1, 2, 3), 1, limit=15), Wish((5, 1), 2, sampling=GREEDY, limit=12)]
    requests = [house.begin(w, seq) for seq, w in enumerate([fine[0], wish, fine[1]])]
    bad = requests[1]
    running = requests
    while running:
        running = house.round(running)
    assert isinstance(bad.error, kind)
    assert isinstance(bad.error, LocalspecError)
    assert house.target.length(1) == 0
    for w, request in zip(fine, (requests[0], requests[2]), strict=True):
        assert request.error is None
        assert request.tokens == alone(w)


class Witness:
    """A policy that remembers what it was told, and drafts nothing."""

    costs = None

    def __init__(self) -> None:
        self.states: list[RequestState] = []
        self.outcomes: list[Outcome] = []
        self.evidence: list[Evidence] = []

    def decide_reading(self, state: RequestState) -> bool:
        return False

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        self.states = [*states]
        return Fixed(3).plan(states)

    def speculation_of(self, seq: int) -> Speculation:
        return Speculation("on")

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        self.outcomes = [*outcomes]
        self.evidence += evidence


def test_a_policy_knows_who_shares_the_pass_and_learns_from_its_own_drafts() -> None:
    house, shared, own = House(), Witness(), Witness()
    wishes = [WISHES[0], WISHES[3], Wish((5, 5), 8, policy=own)]
    requests = [house.begin(wish, seq) for seq, wish in enumerate(wishes)]
    for _ in range(4):
        decode_round(requests, house.target, house.drafter, shared)
    assert [s.other_policy for s in shared.states] == [False, False, True]
    assert [o.other_policy for o in own.outcomes] == [True, True, False]
    assert {e.seq for e in shared.evidence} == {0, 1}
    assert {e.seq for e in own.evidence} == {2}


def test_a_policy_knows_how_far_each_request_may_draft() -> None:
    """By its own limit, the rest of its reply, the context and the pass of all."""

    class Narrow(TableTarget):
        def deepest(self, sequences: int) -> int:
            return 12 // sequences

    house, shared = House(), Witness()
    house.target = Narrow(TABLE, capacity=30)
    wishes = [Wish((0, 1), 1), Wish((5, 1), 2), Wish((5, 1), 3, limit=3), Wish((1,) * 28, 4)]
    requests = [house.begin(wish, seq) for seq, wish in enumerate(wishes)]
    requests[1].drafting = DraftRules(most=1)
    decode_round(requests, house.target, house.drafter, shared)
    assert [s.room for s in shared.states] == [3, 1, 2, 2]
    decode_round(requests[:1], house.target, house.drafter, shared)
    assert [s.room for s in shared.states] == [12]
