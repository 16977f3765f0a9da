"""Which drafter drafts in a round, and what the policy is told of those beside it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import tables

from localspec.core.logits import GREEDY, LogitsProcessor, Sampling
from localspec.core.noise import Noise
from localspec.core.plan import (
    NOTHING,
    Budget,
    DraftPlan,
    DraftStep,
    Evidence,
    Outcome,
    RequestState,
)
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.decode.verifiers import Match, Rejection, Verifier
from localspec.drafters.cascade import Cascade
from localspec.drafters.lookup.suffix import Suffix
from localspec.drafters.model.chain import ChainDrafter
from localspec.testing import Fixed, TableModel, TableTarget

V = 5
TABLE = tables.random_table(7, v=V)
PROMPT = (0, 1, 2, 3, 4) * 3
COPY = DraftStep("suffix", Budget.chain(3))
LOOK = DraftStep("model", NOTHING, probe=True)


class Steps(Fixed):
    """The same steps in every round, and what is learnt of them."""

    def __init__(self, *steps: DraftStep) -> None:
        super().__init__(0)
        self.steps = steps
        self.outcomes: list[Outcome] = []
        self.evidence: list[Evidence] = []

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        return [DraftPlan(self.steps) for _ in states]

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        self.outcomes += outcomes
        self.evidence += evidence


def reply(policy: Steps, sampling: Sampling, verifier: Verifier) -> Request:
    target = TableTarget(TABLE)
    model = ChainDrafter(TableModel(tables.blend(TABLE, TABLE, 0.2)), verifier.favours)
    drafter = Cascade([Suffix(), model])
    target.read(0, PROMPT[:-1])
    processor = LogitsProcessor(sampling, V)
    request = Request(0, list(PROMPT), processor, Noise(3), 40, verifier=verifier)
    while request.running:
        decode_round([request], target, drafter, policy)
    return request


@pytest.mark.parametrize("sampling", [GREEDY, tables.WARM], ids=["greedy", "T = 1"])
@pytest.mark.parametrize("verifier", [Match(), Rejection()], ids=lambda v: v.name)
def test_a_draft_model_is_probed_beside_a_copied_draft(
    sampling: Sampling, verifier: Verifier
) -> None:
    """The copy is drafted as without the probe, which brings its evidence all the same."""
    copying, probing = Steps(COPY), Steps(LOOK, COPY)
    alone, beside = (reply(policy, sampling, verifier) for policy in (copying, probing))
    assert beside.tokens == alone.tokens
    assert [(o.source, o.proposed, o.accepted) for o in probing.outcomes] == [
        (o.source, o.proposed, o.accepted) for o in copying.outcomes
    ]
    assert any(o.accepted for o in probing.outcomes)
    assert {e.source for e in copying.evidence} == {"suffix"}
    assert {e.source for e in probing.evidence} == {"suffix", "model"}


def test_the_seconds_of_a_probe_are_no_seconds_of_the_draft_beside_it() -> None:
    policy = Steps(LOOK, COPY)
    request = reply(policy, GREEDY, Match())
    assert all(o.probed is not None and o.probed.source == "model" for o in policy.outcomes)
    read = [o.probed.seconds for o in policy.outcomes if o.probed is not None and o.probed.seconds]
    assert read, "at first, and after a draft of which all stood, there is nothing to read"
    assert min(read) > 0
    assert all(o.draft_s <= o.drafting_s <= o.round_s for o in policy.outcomes)
    assert set(request.tally.by_drafter) == {"suffix"}
    asked = sum(o.draft_s for o in policy.outcomes)
    assert request.tally.by_drafter["suffix"].seconds == pytest.approx(asked)
    assert request.tally.draft_seconds == pytest.approx(sum(o.drafting_s for o in policy.outcomes))


def test_where_nothing_is_copied_a_probe_leaves_the_round_plain() -> None:
    policy = Steps(LOOK)
    reply(policy, GREEDY, Match())
    assert not any(o.proposed or o.considered or o.draft_s for o in policy.outcomes)
    assert {e.source for e in policy.evidence} == {"model"}
