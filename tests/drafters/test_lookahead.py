"""Lookahead decoding: shapes, the pool, and exact replies that come in fewer rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tables
from hypothesis import given
from hypothesis import strategies as st
from policy_world import CPU, GPU
from tables import TableTarget

from localspec.core import drafter_registry
from localspec.core.events import Speculation
from localspec.core.files.paths import DEMO_DIR
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.logits import GREEDY, LogitsProcessor, Sampling
from localspec.core.media_rows import row_ids
from localspec.core.noise import Noise
from localspec.core.plan import ANY, Budget, DraftPlan, DraftStep, RequestState
from localspec.core.values import Draft, Logits, Tokens
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.decode.verifiers import Match, Rejection, Verifier
from localspec.drafters.base import Ask, Committed, Drafter, Off
from localspec.drafters.cascade import Cascade
from localspec.drafters.lookup.lookahead import Lookahead, NgramPool
from localspec.drafters.lookup.suffix import Suffix
from localspec.grammar.compiling import compiled
from localspec.grammar.matching import GrammarMatcher
from localspec.llama.model import Model
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.storage import Knowledge

TREE = drafter_registry.get("lookahead").tree
assert TREE is not None
BRANCHING = TREE.branching
V = 40
COUNTING = tables.random_table(3, v=5)


def in_words(tokens: Tokens) -> Logits:
    """A language of ten words of four tokens each, one after the other as their places say."""
    row = np.zeros(V, np.float32)
    last, place = tokens[-1], len(tokens)
    row[last + 1 if last % 4 < 3 else 4 * (place * place % 97 % 10)] = 9.0
    return row


class Broad:
    """A policy of one budget for all rounds."""

    costs = None

    def __init__(self, budget: Budget) -> None:
        self._plan = DraftPlan((DraftStep(ANY, budget),))

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        return [self._plan] * len(states)

    def speculation_of(self, seq: int) -> Speculation:
        return Speculation("on")

    def learn(self, outcomes: object, evidence: object) -> None:
        pass


PAPER = Budget(nodes=63, depth=15, leaves=16)
budgets = st.builds(Budget, st.integers(0, 70), st.integers(0, 20), st.integers(0, 20))


def ask(tokens: list[int], budget: Budget) -> Ask:
    return Ask(0, tokens, budget, Noise(0), LogitsProcessor(GREEDY, V))


def leaves(draft: Draft) -> int:
    return len(set(range(len(draft))) - {int(p) for p in draft.parents})


def grown(budget: Budget, rounds: int) -> tuple[Request, Lookahead, TableTarget]:
    """After some rounds of a reply."""
    target, drafter = TableTarget(in_words), Lookahead()
    target.read(0, [1, 2, 3])
    request = Request(0, [1, 2, 3, 4], LogitsProcessor(GREEDY, V), Noise(0), 400)
    for _ in range(rounds):
        decode_round([request], target, drafter, Broad(budget))
    return request, drafter, target


@given(budgets, st.integers(0, 12))
def test_a_draft_keeps_its_budget(budget: Budget, rounds: int) -> None:
    request, drafter, _ = grown(budget, rounds)
    (draft,) = drafter.propose([ask(request.tokens, budget)])
    if len(draft):
        assert len(draft) <= budget.nodes
        assert leaves(draft) <= budget.leaves
        assert max(len(draft.prefix(i)) for i in range(len(draft))) <= budget.depth
        assert all(parent < i for i, parent in enumerate(draft.parents))
        paths = [draft.prefix(i) for i in range(len(draft))]
        assert len(paths) == len(set(paths))  # what paths share is computed once


def test_a_target_that_scores_chains_alone_is_not_asked_for_trees() -> None:
    (draft,) = Lookahead().propose([ask([1, 2, 3], Budget.chain(30))])
    assert not len(draft)


@pytest.mark.parametrize("sampling", [GREEDY, tables.WARM])
@pytest.mark.parametrize("budget", [PAPER, Budget(8, 4, 4), Budget(20, 6, 8)])
def test_the_text_is_that_of_plain_decoding(budget: Budget, sampling: Sampling) -> None:
    for seed in range(20):
        texts = [
            tables.decode(
                COUNTING, drafter, Match(), seed, 30, sampling=sampling, policy=Broad(budget)
            )
            for drafter in (Off(), Lookahead())
        ]
        assert texts[0] == texts[1]


@pytest.mark.parametrize("verifier", [Match(), Rejection()])
def test_guesses_in_parallel_save_rounds(verifier: Verifier) -> None:
    """The target knows its words before the text has had them."""
    target, drafter = TableTarget(in_words), Lookahead()
    target.read(0, [1, 2, 3])
    processor = LogitsProcessor(GREEDY, V)
    request = Request(0, [1, 2, 3, 4], processor, Noise(0), 200, verifier=verifier)
    while request.running:
        decode_round([request], target, drafter, Broad(PAPER))
    assert request.tally.rounds < 120
    assert request.tally.by_drafter["lookahead"].accepted > 80


def _guided(model: Model, drafter: Drafter, spelled: str, prompt: list[int]) -> Request:
    """A reply of 120 tokens that repeats a text, as far as a regular expression allows it."""
    unit = model.tokenize(" the cat sat on the mat and the dog sat on the log and")

    def repeating(tokens: Tokens) -> Logits:
        row = np.zeros(model.n_vocab, np.float32)
        row[unit[(len(tokens) - len(prompt)) % len(unit)]] = 9.0
        return row

    spec, size = GrammarSpec.regex(spelled), model.n_vocab
    words, ends, begun = model.grammar_vocabulary(), model.end_ids, len(prompt)
    grammar = GrammarMatcher(
        words, compiled(spec), spec.kind, start=begun, n_vocab=size, end_ids=ends
    )
    target, request = (
        TableTarget(repeating),
        Request(0, [*prompt], LogitsProcessor(GREEDY, size, grammar), Noise(0), 120),
    )
    target.read(0, prompt[:-1])
    while request.running:
        decode_round([request], target, drafter, Broad(PAPER))
    return request


@pytest.mark.parametrize("spelled", [r"[a-z ]*", r"( (the|cat|sat|on|mat|and|dog|log))*"])
@pytest.mark.parametrize("picture", [False, True])
def test_it_goes_on_under_a_grammar_and_behind_a_picture(spelled: str, *, picture: bool) -> None:
    """A grammar cuts columns off; rows of pictures are in no token of a window."""
    model = Model(DEMO_DIR / "target.gguf")
    prompt = [1, *(row_ids(b"shown", 12) if picture else []), *model.tokenize("hi")]
    plain, drafted = (_guided(model, d, spelled, prompt) for d in (Off(), Lookahead()))
    model.close()
    assert drafted.error is None
    assert drafted.tokens == plain.tokens
    assert drafted.tally.rounds < 80 < plain.tally.rounds
    assert drafted.tally.by_drafter["lookahead"].accepted > 30


def test_in_a_cascade_it_drafts_where_the_text_has_nothing() -> None:
    target, drafter = TableTarget(in_words), Cascade([Suffix(6), Lookahead()])
    target.read(0, [1, 2, 3])
    request = Request(0, [1, 2, 3, 4], LogitsProcessor(GREEDY, V), Noise(0), 200)
    while request.running:
        decode_round([request], target, drafter, Broad(PAPER))
    assert set(request.tally.by_drafter) == {"suffix", "lookahead"}
    target.cache[0] = [1, 2, 3]
    plain = Request(0, [1, 2, 3, 4], LogitsProcessor(GREEDY, V), Noise(0), 200)
    while plain.running:
        decode_round([plain], target, Off(), Broad(PAPER))
    assert plain.tokens == request.tokens


def test_columns_stay_with_their_places_however_many_tokens_a_round_emits() -> None:
    """A target that knows the place of a token by its depth: guesses are right where they stand."""

    def by_place(tokens: Tokens) -> Logits:
        row = np.zeros(V, np.float32)
        row[(7 * len(tokens)) % V] = 1.0
        return row

    target, drafter = TableTarget(by_place), Lookahead()
    target.read(0, [0, 7, 14])
    request = Request(0, [0, 7, 14, 21], LogitsProcessor(GREEDY, V), Noise(0), 200)
    while request.running:
        decode_round([request], target, drafter, Broad(PAPER))
    assert request.tally.rounds < 100


def test_nothing_of_another_request_is_drafted() -> None:
    request, drafter, _ = grown(PAPER, 30)
    secret = {int(t) for t in request.tokens[4:]} - {0, 1}
    other = [0, 1, 0]
    drafter.commit([Committed(0, other, other)])
    (draft,) = drafter.propose([ask(other, PAPER)])
    assert secret
    assert {int(t) for t in draft.tokens} <= {0, 1}


def test_a_pool_holds_the_newest_and_no_more_than_its_bounds() -> None:
    pool = NgramPool(tokens=3, each=2)
    for token in range(1000):
        for then in range(5):
            pool.add(token, (then, then))
        pool.add(token, (3, 3))
        assert len(pool) <= 6
    assert pool.after(999, 5) == [(3, 3), (4, 4)]
    assert pool.after(999, 1) == [(3, 3)]
    assert pool.after(0, 5) == []


@pytest.mark.parametrize(("curve", "drafts"), [(CPU, False), (GPU, True)])
def test_it_is_asked_only_where_breadth_is_nearly_free(curve: object, *, drafts: bool) -> None:
    policy = Controller(
        Knowledge({0: Costs(curve, {})}),  # type: ignore[arg-type]
        ["lookahead"],
        free=["lookahead"],
        branching={"lookahead": BRANCHING},
    )
    (plan,) = policy.plan([RequestState(0, 10, 0, "greedy")])
    assert bool(plan.steps) is drafts
    assert (policy.speculation_of(0).state == "parked") or drafts
    if not drafts:
        assert "costs too much" in str(policy.speculation_of(0).reason)


def test_several_requests_in_a_round_are_not_drafted_trees() -> None:
    """A target scores a tree alone; it refuses one among other requests."""
    target = TableTarget(COUNTING)
    requests = []
    for seq in range(2):
        target.read(seq, [0, 1, 2])
        processor, limit = LogitsProcessor(GREEDY, 5), 30
        requests.append(Request(seq, [0, 1, 2, 3], processor, Noise(0), limit))
    drafter = Lookahead()
    budget = Budget(nodes=30, depth=6, leaves=16)
    while requests[0].finish is None:
        for turn in decode_round(requests, target, drafter, Broad(budget)):
            assert turn.draft.is_chain
    assert requests[0].tokens == requests[1].tokens
