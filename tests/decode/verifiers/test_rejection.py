"""`rejection` is exact in distribution for the proposals it lists, and refuses the others.

Every frequency test compares the first three tokens, jointly, with the exact distribution by a
chi-squared test at a false-alarm rate of 1e-4, which looks at a quarter and a half of the draws
first (`frequencies.LOOKS`). Seeds are fixed, so a test that passes once passes
always; the rate is that of a correct program failing when the seeds are changed.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import numpy as np
import pytest
import tables
from frequencies import DRAFT, FALSE_ALARM, TARGET, p_value
from policy_world import Timeless

from localspec.core.errors import ProposalError
from localspec.core.events import Speculation
from localspec.core.noise import Noise, Stream
from localspec.core.plan import ANY, Budget, DraftPlan, DraftStep, RequestState
from localspec.core.values import Distribution, Draft, Proposal, TargetRows, Verdict, no_draft
from localspec.decode.verifiers import Match, Rejection, Verifier, residual
from localspec.drafters.base import Ask, Drafter
from localspec.drafters.lookup.lookahead import Lookahead
from localspec.drafters.model.chain import ChainDrafter
from localspec.drafters.model.proposal import overlaps, sharpened
from localspec.policy.costs import Costs
from localspec.policy.storage import Knowledge
from localspec.testing import TableModel

CLOSELY, CLOSER = 5_600, 8_400
"""Draws, at most; they find an error of 12 %, or 10 %, of each probability, as a mean square, nine
times in ten.
"""
LISTED = [s for s, (_, proposal) in tables.SHAPES.items() if proposal in Rejection.proposals]


@pytest.mark.slow
@pytest.mark.parametrize("shape", LISTED)
def test_first_three_tokens_follow_the_target_closely(shape: str) -> None:
    assert p_value(tables.shaped_drafter(shape, DRAFT), Rejection(), CLOSELY) > FALSE_ALARM


@pytest.mark.slow
def test_the_draft_model_of_the_product_follows_the_target_closely() -> None:
    drafter = ChainDrafter(TableModel(DRAFT), Proposal.SAMPLED)
    assert p_value(drafter, Rejection(), CLOSELY) > FALSE_ALARM


def test_lookahead_follows_the_target() -> None:
    assert p_value(Lookahead(), Rejection(), 2_800, tables.Broad()) > FALSE_ALARM


@pytest.mark.slow
def test_trees_of_a_draft_model_follow_the_target_closely() -> None:
    assert (
        p_value(tables.branching(DRAFT, Proposal.SAMPLED), Rejection(), CLOSELY, tables.Broad())
        > FALSE_ALARM
    )


class _Threshold:
    """A pace that stops by confidence, and the policy that sets it."""

    speculation = Speculation("on")
    costs = None

    def more(self, confidences: Sequence[float]) -> bool:
        return confidences[-1] > 0.55

    def further(self, confidences: Sequence[float]) -> bool:
        return True

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        return [DraftPlan((DraftStep(ANY, Budget.chain(3), pace=self),))] * len(states)

    def learn(self, outcomes: object, evidence: object) -> None:
        pass


class _ChoosesByWhatItDrew(Drafter):
    """The third mistake: tokens that turned out improbable are left out after they were drawn."""

    name = "choosy"

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        (ask,) = asks
        q = ask.processor(DRAFT(list(ask.tokens)), [])
        x = ask.noise.draw(q, ask.position, Stream.DRAFT, index=ask.position)
        if q.probability(x) < 0.5 or not ask.budget.nodes:
            return [no_draft(self.name)]
        ids, parents = np.array([x], np.int32), np.array([-1], np.int32)
        return [Draft(ids, parents, Proposal.SAMPLED, (q,), self.name)]


@pytest.mark.slow
def test_stopping_by_confidence_before_a_token_is_drawn_keeps_the_distribution() -> None:
    drafter = ChainDrafter(TableModel(DRAFT), Proposal.SAMPLED)
    assert p_value(drafter, Rejection(), CLOSER, _Threshold()) > FALSE_ALARM


@pytest.mark.slow
def test_a_draft_that_is_too_flat_is_sharpened_and_stays_exact() -> None:
    """The draft is the target at more than twice its temperature: q^2.5 is the target itself."""
    flat = ChainDrafter(TableModel(lambda tokens: TARGET(tokens) / 2.5), Proposal.SAMPLED)
    assert p_value(flat, Rejection(), CLOSER) > FALSE_ALARM
    assert flat.chooser.sharpness(tables.WARM) == 2.5
    fitting = ChainDrafter(TableModel(TARGET), Proposal.SAMPLED)
    assert p_value(fitting, Rejection(), 700) > FALSE_ALARM
    assert fitting.chooser.sharpness(tables.WARM) == 1.0


def test_overlap_is_the_probability_of_acceptance() -> None:
    p = Distribution(np.array([1, 2, 5], np.int32), np.array([0.5, 0.3, 0.2]))
    q = Distribution(np.array([2, 5, 7], np.int32), np.array([0.1, 0.6, 0.3]))
    assert overlaps(p, q, np.array([1.0])) == pytest.approx([0.1 + 0.2])
    assert overlaps(p, p, np.array([1.0])) == pytest.approx([1])
    squared = sum(min(x, x * x / 0.38) for x in (0.5, 0.3, 0.2))
    assert overlaps(p, p, np.array([1.0, 2.0])) == pytest.approx([1, squared])
    assert overlaps(p, sharpened(p, 2.0), np.array([1.0])) == pytest.approx([squared])


@pytest.mark.slow
def test_the_test_sees_a_draft_that_chooses_by_what_it_drew() -> None:
    assert p_value(_ChoosesByWhatItDrew(), Rejection(), 2_000) < 1e-12


@pytest.mark.slow
def test_the_controller_keeps_the_distribution() -> None:
    """It goes on learning from one run to the next, as in a long chat."""
    knowledge = Knowledge({0: Costs({1: 1.0, 2: 1.1, 4: 1.3}, {"model": 0.02})})
    drafter = ChainDrafter(TableModel(DRAFT), Proposal.SAMPLED)
    policy = Timeless(knowledge, ["model"])
    assert p_value(drafter, Rejection(), 4_000, policy, looks_early=False) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("verifier", [Match(), Rejection()])
def test_the_test_sees_a_wrong_label(verifier: Verifier) -> None:
    """Negative control: an argmax draft that claims to be sampled. Match does not care."""
    pick, _ = tables.SHAPES["argmax chain"]
    liar = tables.TreeDrafter("liar", DRAFT, pick, Proposal.SAMPLED, depth=3)
    p = p_value(liar, verifier, 1_000)
    if isinstance(verifier, Rejection):
        assert p < 1e-12
    else:
        assert p > FALSE_ALARM


def test_coupled_drafts_are_refused_by_name() -> None:
    coupled = tables.shaped_drafter("coupled chain", DRAFT)
    with pytest.raises(ProposalError, match=r"'coupled chain'.*coupled.*'rejection'"):
        tables.decode(TARGET, coupled, Rejection(), 0, 3)


class _ResidualOfTargetAlone(Rejection):
    """The first classic mistake: after a miss it draws from p instead of max(0, p - q)."""

    def __call__(
        self, draft: Draft, rows: TargetRows, noise: Noise, position: int, ends: Container[int] = ()
    ) -> Verdict:
        verdict = super().__call__(draft, rows, noise, position, ends)
        last = verdict.path[-1] if verdict.path else -1
        if draft.children(last):
            p = rows(last + 1)
            token = noise.draw(p, position + len(verdict.path), Stream.RESIDUAL)
            return Verdict(verdict.path, token, verdict.verified)
        return verdict


class _BonusAfterCorrection(Rejection):
    """The second: where only the last drafted token missed, the bonus row is used all the same,
    which keeps the rejected token and emits a token that follows it."""

    def __call__(
        self, draft: Draft, rows: TargetRows, noise: Noise, position: int, ends: Container[int] = ()
    ) -> Verdict:
        verdict = super().__call__(draft, rows, noise, position, ends)
        if len(draft) and len(verdict.path) == len(draft) - 1:
            token = noise.draw(rows(len(draft)), position + len(draft), Stream.SAMPLE)
            return Verdict(tuple(range(len(draft))), token, len(draft))
        return verdict


@pytest.mark.slow
@pytest.mark.parametrize("mistake", [_ResidualOfTargetAlone(), _BonusAfterCorrection()])
def test_the_test_sees_both_classic_mistakes(mistake: Verifier) -> None:
    assert p_value(tables.shaped_drafter("sampled chain", DRAFT), mistake, 1_000) < 1e-12


def test_residual_is_what_the_target_has_beyond_the_draft() -> None:
    p = Distribution(np.array([1, 2, 5], np.int32), np.array([0.5, 0.3, 0.2]))
    q = Distribution(np.array([2, 5, 7], np.int32), np.array([0.1, 0.6, 0.3]))
    left = residual(p, q)
    assert left.ids.tolist() == [1, 2]
    np.testing.assert_allclose(left.probs, [0.5 / 0.7, 0.2 / 0.7])


def test_residual_of_equal_distributions_is_the_distribution() -> None:
    p = Distribution(np.array([1, 2], np.int32), np.array([0.5, 0.5]))
    assert residual(p, p) is p


def test_no_bonus_after_a_miss_and_one_token_of_the_target_always() -> None:
    drafter = tables.shaped_drafter("sampled chain", DRAFT)
    for seed in range(300):
        target = tables.TableTarget(TARGET)
        target.read(0, tables.PROMPT[:-1])
        processor = tables.LogitsProcessor(tables.WARM, 3)
        request = tables.Request(
            0,
            list(tables.PROMPT),
            processor,
            Noise(seed),
            20,
            verifier=Rejection(),
        )
        (turn,) = tables.decode_round([request], target, drafter, tables.Fixed(3))
        kinds = [e.origin.value for e in turn.emitted]
        accepted = len(turn.verdict.path)
        last = "bonus" if accepted == len(turn.draft) else "corrected"
        assert kinds == ["accepted"] * accepted + [last]
