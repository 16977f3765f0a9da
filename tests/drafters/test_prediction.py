"""Drafting from the text that a client expects: found again after edits, exact, and counted."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np
import pytest
import tables
from frequencies import FALSE_ALARM, p_value_by_looks
from policy_world import Timeless

from localspec.core.logits import GREEDY, LogitsProcessor, Sampling
from localspec.core.noise import Noise
from localspec.core.plan import Budget, RequestState
from localspec.decode.request import DraftRules, Request
from localspec.decode.round import decode_round
from localspec.decode.verifiers import Match, Rejection, Verifier
from localspec.drafters.base import Ask, Drafter, Off
from localspec.drafters.cascade import Cascade
from localspec.drafters.lookup.predicted_text import PredictedText
from localspec.drafters.lookup.prediction import PredictionDrafter
from localspec.drafters.lookup.suffix import Suffix
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.simple import Plain
from localspec.policy.storage import Knowledge
from localspec.testing import Fixed, TableTarget

V = 9
TABLE = tables.random_table(91, V)
TEXT = [*range(100, 160), 7, 8, *range(200, 260), 7, 8, *range(300, 360)]
PROMPT = [1, 2, 3]


def followed(reply: Sequence[int], text: Sequence[int] = TEXT) -> PredictedText:
    made = PredictedText(text, len(PROMPT))
    made.follow([*PROMPT, *reply])
    return made


def missed(reply: Sequence[int], text: Sequence[int] = TEXT) -> list[int]:
    """Places of a reply whose token was not the one predicted."""
    made, found = PredictedText(text, len(PROMPT)), []
    for i, token in enumerate(reply):
        if [*made.next(1)] != [token]:
            found.append(i)
        made.follow([*PROMPT, *reply[: i + 1]])
    return found


EDITS = {
    "nothing": (TEXT, 0),
    "one token replaced": ([*TEXT[:30], 9, *TEXT[31:]], 1),
    "several replaced by as many": ([*TEXT[:30], 9, 9, 9, *TEXT[33:]], 4),
    "several replaced by more": ([*TEXT[:30], 9, 9, 9, 9, 9, *TEXT[32:]], 6),
    "several replaced by fewer": ([*TEXT[:30], 9, *TEXT[36:]], 2),
    "a part left out": ([*TEXT[:30], *TEXT[50:]], 1),
    "a part inserted": ([*TEXT[:30], *range(500, 540), *TEXT[30:]], 41),
    "the beginning left out": (TEXT[20:], 1),
    "a preface": ([9, 10, 11, 12, *TEXT], 5),
    "parts in another order": ([*TEXT[62:122], *TEXT[:62], *TEXT[122:]], 4),
    "every tenth replaced": ([9 if i % 10 == 5 else t for i, t in enumerate(TEXT)], 19),
    "the end left out": (TEXT[:40], 0),
    "more at the end": ([*TEXT, 9, 9, 9], 3),
}


@pytest.mark.parametrize("edit", EDITS)
def test_it_finds_its_place_again_right_after_an_edit(edit: str) -> None:
    reply, most = EDITS[edit]
    assert len(missed(reply)) <= most


def test_a_token_that_is_everywhere_leads_to_the_nearest_place() -> None:
    lines = [token for i in range(40) for token in (1000 + i, 2000 + i, 5)]  # 5 ends every line
    reply = [*lines[:60], 77, 5, *lines[63:]]
    assert missed(reply, lines) == [60, 61]


def test_confidence_grows_with_what_agreed_and_falls_where_it_leaves() -> None:
    sure, left = followed(TEXT[:40]), followed([*TEXT[:40], 9])
    assert 0.9 < sure.confidence(0) < sure.confidence(5) < 1
    assert left.confidence(0) < followed([]).confidence(0) < sure.confidence(0)


@pytest.mark.parametrize("seed", range(6))
def test_counts_are_those_of_the_longest_common_subsequence(seed: int) -> None:
    rng = random.Random(seed)
    text = [rng.randrange(6) for _ in range(rng.randrange(60))]
    reply = [rng.randrange(6) for _ in range(rng.randrange(60))]
    table = np.zeros((len(text) + 1, len(reply) + 1), int)
    for i, j in itertools.product(range(len(text)), range(len(reply))):
        same = table[i, j] + 1 if text[i] == reply[j] else 0
        table[i + 1, j + 1] = max(same, table[i, j + 1], table[i + 1, j])
    found = followed(reply, text)
    assert found.accepted == table[-1, -1]
    assert found.accepted + found.rejected == len(text)


def test_what_no_reply_can_reach_is_counted_as_rejected() -> None:
    made = PredictedText([1, 2, 3, 4], 0, most=2)
    made.follow([1, 2])
    assert (made.accepted, made.rejected) == (2, 2)
    assert [*made.next(9)] == []


# -- in the loop -------------------------------------------------------------------------------


def run(
    drafter: Drafter,
    verifier: Verifier,
    prediction: Sequence[int] | None,
    *,
    sampling: Sampling = tables.WARM,
    seed: int = 1,
    n: int = 40,
    beside: int = 0,
    **rules: object,
) -> Request:
    target = TableTarget(TABLE)
    requests = [
        Request(
            seq=i,
            tokens=[0, 1],
            processor=LogitsProcessor(sampling, V),
            noise=Noise(seed + i),
            limit=n + i,
            verifier=verifier,
            drafting=DraftRules(
                prediction=None if prediction is None or i else PredictedText(prediction, 2),
                **rules,
            ),
        )
        for i in range(1 + beside)
    ]
    for request in requests:
        target.read(request.seq, [0])
    while running := [request for request in requests if request.running]:
        decode_round(running, target, drafter, Fixed(4))
    assert all(request.error is None for request in requests)
    return requests[0]


def everything() -> Cascade:
    model = tables.shaped_drafter("argmax chain", tables.blend(TABLE, TABLE, 0.0))
    return Cascade([PredictionDrafter(), Suffix(2), model])


@pytest.mark.parametrize("sampling", [tables.WARM, GREEDY], ids=["warm", "greedy"])
def test_a_reply_is_the_same_whatever_was_predicted(sampling: Sampling) -> None:
    plain = run(Off(), Match(), None, sampling=sampling).tokens
    right = plain[2:]
    edited = [*right[:10], 3, *right[14:20], *right[18:]]
    for prediction in (right, edited, right[::-1], [5] * 30, [], [*range(V)] * 4):
        for beside in (0, 3):
            found = run(everything(), Match(), prediction, sampling=sampling, beside=beside)
            assert found.tokens == plain
            drafted = found.tally.by_drafter
            assert not prediction or drafted[PredictionDrafter.name].drafted > 0
    whole = run(PredictionDrafter(), Match(), right, sampling=sampling)
    assert whole.tally.accepted == whole.tally.drafted == 40 - whole.tally.rounds


@pytest.mark.slow
def test_under_rejection_the_distribution_is_the_targets_own() -> None:
    """The first two tokens of up to 8,000 replies, by χ² at a false alarm of 1e-4."""

    def said(seed: int) -> tuple[int, ...]:
        return tuple(run(PredictionDrafter(), Rejection(), [4, 2, 4], seed=seed, n=2).tokens[2:4])

    assert p_value_by_looks(said, tables.exact_joint(TABLE, 2), 8_000) > FALSE_ALARM


def test_a_prediction_of_one_request_is_drafted_for_no_other() -> None:
    drafter = PredictionDrafter()
    ask = {"budget": Budget.chain(4), "noise": Noise(1), "processor": LogitsProcessor(GREEDY, V)}
    one = Ask(0, [0, 1], prediction=PredictedText([5, 6, 7], 2), **ask)
    other = Ask(1, [0, 1], **ask)
    drafts = drafter.propose([one, other])
    assert drafts[0].tokens.tolist() == [5, 6, 7]
    assert len(drafts[1]) == 0


@pytest.mark.parametrize("names", [{"suffix"}, {"prediction"}, {"argmax chain"}, set()])
def test_only_those_draft_that_the_request_allows(names: set[str]) -> None:
    plain = run(Off(), Match(), None).tokens
    found = run(everything(), Match(), plain[2:], drafters=frozenset(names))
    assert found.tokens == plain
    assert {n for n, s in found.tally.by_drafter.items() if s.drafted} == names


@pytest.mark.parametrize("most", [0, 1, 3])
def test_no_draft_is_longer_than_the_request_allows(most: int) -> None:
    plain = run(Off(), Match(), None).tokens
    found = run(everything(), Match(), plain[2:], most=most)
    assert found.tokens == plain
    assert len(found.tally.judged_at) == most


# -- under the controller ----------------------------------------------------------------------


def controller(sources: Sequence[str] = ("prediction", "suffix", "model")) -> Controller:
    """On a machine where a pass over 32 tokens takes five times as long as one over a single."""
    costs = Costs({1: 0.02, 4: 0.022, 8: 0.03, 32: 0.1}, {"model": 0.004})
    return Timeless(Knowledge({0: costs}), sources, free=("prediction", "suffix"))


def state(*drafters: str) -> RequestState:
    return RequestState(0, 10, 0, "greedy", drafters=frozenset(drafters))


def test_a_prediction_is_asked_first_and_only_where_there_is_one() -> None:
    policy = controller()
    (plan,) = policy.plan([state("prediction", "suffix")])
    assert [step.source for step in plan.steps] == ["prediction", "suffix"]
    (plan,) = policy.plan([state("suffix")])
    assert [step.source for step in plan.steps] == ["suffix"]
    (plan,) = policy.plan([state()])
    assert plan.steps == ()


def test_a_prediction_is_asked_on_however_often_it_was_wrong() -> None:
    policy, target = controller(), TableTarget(TABLE)
    target.read(0, [0])
    wrong = [8, 8, 8] * 20
    request = Request(
        seq=0,
        tokens=[0, 1],
        processor=LogitsProcessor(GREEDY, V),
        noise=Noise(1),
        limit=400,
        policy=policy,
        drafting=DraftRules(frozenset({"prediction"}), None, PredictedText(wrong, 2)),
    )
    while request.running:
        (plan,) = policy.plan([request.state(target, unread=0, batch=1)])
        assert plan.steps == () or plan.steps[0].source == "prediction"
        decode_round([request], target, PredictionDrafter(), Plain("shared"))
    assert request.error is None
    assert request.tally.drafted < 200  # few of 1200 guesses were worth a place in a pass


def test_the_places_of_a_frequent_token_are_marked_in_one_step() -> None:
    n = 2_000_000  # minutes, were each place put to all before it
    made = PredictedText([7] * n + [8], 0)
    made.follow([8, 7])
    assert (made.accepted, made.rejected) == (1, n)
