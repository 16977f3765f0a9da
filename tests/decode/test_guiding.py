"""Under a grammar: p is the masked target, whatever was drafted, and forced tokens are free."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tables
from frequencies import FALSE_ALARM, p_value_by_looks, p_value_of
from ruled import Ruled, turns
from tables import PROMPT, WARM

from localspec.core.emitted import Origin
from localspec.core.logits import GREEDY, LogitsProcessor, Sampling
from localspec.core.noise import Noise
from localspec.core.plan import DraftPlan, Evidence, RequestState
from localspec.core.round_counts import DrafterStats
from localspec.core.values import Draft, Proposal, chain_parents, no_draft
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.decode.verifiers import Match, Rejection, Verifier
from localspec.drafters.base import Ask, Drafter, GrammarDrafter, Off
from localspec.drafters.lookup.lookahead import Lookahead
from localspec.drafters.lookup.ngram import NGram
from localspec.drafters.lookup.suffix import Suffix
from localspec.drafters.model.chain import ChainDrafter
from localspec.testing import Fixed, TableModel, TableTarget

V = 4
TARGET = tables.random_table(21, v=V, sharpness=1.0)
DRAFT = tables.blend(TARGET, tables.random_table(22, v=V, sharpness=1.0), 0.7)
EXACT = tables.exact_joint(TARGET, 4, rule=turns)
LISTED = [s for s, (_, proposal) in tables.SHAPES.items() if proposal in Rejection.proposals]

DRAFTERS = {
    **{shape: lambda shape=shape: tables.shaped_drafter(shape, DRAFT) for shape in tables.SHAPES},
    "model": lambda: ChainDrafter(TableModel(DRAFT), Proposal.COUPLED),
    "tree": lambda: tables.branching(DRAFT, Proposal.COUPLED),
    "head tree": lambda: tables.growing(DRAFT, Proposal.COUPLED),
    "suffix": Suffix,
    "ngram": NGram,
    "lookahead": Lookahead,
    "grammar": GrammarDrafter,
}


def broad(name: str) -> object:
    return tables.Broad() if "tree" in name or name == "lookahead" else Fixed(3)


@pytest.mark.parametrize("sampling", [GREEDY, WARM, Sampling(temperature=0.7, top_k=3)])
@pytest.mark.parametrize("name", DRAFTERS)
def test_match_gives_the_tokens_of_plain_masked_decoding(name: str, sampling: Sampling) -> None:
    for seed in range(2):
        plain = tables.decode(
            TARGET, Off(), Match(), seed, 16, sampling=sampling, rule=turns, guided=False
        )
        drafted = tables.decode(
            TARGET,
            DRAFTERS[name](),
            Match(),
            seed,
            16,
            sampling=sampling,
            policy=broad(name),
            rule=turns,
        )
        assert drafted == plain


def said(drafter: Drafter, verifier: Verifier, seed: int, policy: object) -> tuple[int, ...]:
    drafter.close(0)
    return tuple(tables.decode(TARGET, drafter, verifier, seed, 4, policy=policy, rule=turns))


@pytest.mark.slow
@pytest.mark.parametrize("shape", LISTED)
def test_rejection_follows_the_masked_target(shape: str) -> None:
    drafter = tables.shaped_drafter(shape, DRAFT)
    assert (
        p_value_by_looks(lambda seed: said(drafter, Rejection(), seed, Fixed(3)), EXACT, 700)
        > FALSE_ALARM
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["model", "tree", "lookahead"])
def test_rejection_follows_the_masked_target_with_the_products_drafters(kind: str) -> None:
    drafter, policy = {
        "model": (ChainDrafter(TableModel(DRAFT), Proposal.SAMPLED), Fixed(3)),
        "tree": (tables.branching(DRAFT, Proposal.SAMPLED), tables.Broad()),
        "lookahead": (Lookahead(), tables.Broad()),
    }[kind]
    assert (
        p_value_by_looks(lambda seed: said(drafter, Rejection(), seed, policy), EXACT, 700)
        > FALSE_ALARM
    )


class _Unmasked(Drafter):
    """Draws from a q that the grammar has not masked, and says that it was masked."""

    name = "unmasked"

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        (ask,) = asks
        q = LogitsProcessor(WARM, V)(DRAFT(ask.tokens), ())
        masked = ask.processor(DRAFT(ask.tokens), ask.tokens)
        token = int(np.random.default_rng(ask.noise.seed + ask.position).choice(q.ids, p=q.probs))
        return [
            Draft(
                np.array([token], np.int32),
                chain_parents(1),
                Proposal.SAMPLED,
                (masked,),
                "unmasked",
            )
        ]


def test_the_test_sees_a_q_that_was_not_masked() -> None:
    found = (said(_Unmasked(), Rejection(), seed, Fixed(1)) for seed in range(500))
    assert p_value_of(found, EXACT) < FALSE_ALARM


def request(
    n: int = 12, sampling: Sampling = GREEDY, rule: object = turns, guided: bool = True
) -> Request:
    processor = LogitsProcessor(sampling, V, Ruled(rule, len(PROMPT)))
    return Request(0, list(PROMPT), processor, Noise(1), n, guided=guided)


def rounds(
    one: Request, drafter: Drafter, policy: object = None, target: TableTarget | None = None
) -> Request:
    target = target or TableTarget(TARGET)
    target.read(0, PROMPT[:-1])
    while one.running:
        decode_round([one], target, drafter, policy or Fixed(3))
    assert one.error is None
    return one


def script(*tokens: int) -> object:
    """A rule that forces these tokens and then ends, but for a choice at every 9."""

    def rule(reply: Sequence[int]) -> set[int]:
        if len(reply) >= len(tokens):
            return set()
        wanted = tokens[len(reply)]
        return {0, 1, 2, 3} if wanted == 9 else {wanted}

    return rule


def test_forced_tokens_need_one_pass_and_are_counted_as_the_grammars() -> None:
    one = rounds(request(rule=script(2, 1, 3, 2, 2)), GrammarDrafter())
    assert [e.token for e in one.emitted] == [2, 1, 3, 2, 2]
    assert one.finish == "stop"
    assert one.tally.rounds == 1
    assert set(one.tally.by_drafter) == {"grammar"}
    assert [e.source for e in one.emitted[:-1]] == ["grammar"] * 4


def test_switched_off_nothing_is_forced() -> None:
    one = rounds(request(rule=script(2, 1, 3, 2), guided=False), Off())
    assert one.tally.rounds == 4
    assert {e.origin for e in one.emitted} == {Origin.PLAIN}


def test_a_draft_model_goes_on_through_forced_tokens_without_being_asked() -> None:
    model = TableModel(TARGET)
    passes: list[int] = []
    extend = model.extend
    model.extend = lambda work: (passes.append(len(work[0][1])), extend(work))[1]  # type: ignore[method-assign]
    one = rounds(
        request(rule=script(9, 1, 3, 9, 2, 2, 9)), ChainDrafter(model, Proposal.COUPLED), Fixed(5)
    )
    assert one.tally.rounds == 1
    assert len(passes) == 3  # one for each choice, forced tokens read along
    assert one.tally.by_drafter["grammar"].accepted == 4
    assert one.tally.by_drafter["model"].accepted == 3


class _Guess(Drafter):
    """Drafts the same tokens every time."""

    name = "guess"

    def __init__(self, *tokens: int) -> None:
        self._tokens = tokens

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        n = len(self._tokens)
        tokens = np.array(self._tokens, np.int32)
        return [Draft(tokens, chain_parents(n), Proposal.DETERMINISTIC, None, self.name)]


class _Unsure(Drafter):
    """Computes a q in every round, and drafts nothing."""

    name = "unsure"

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [no_draft(self.name, 0.25, 1) for _ in asks]


def test_tokens_forced_behind_an_empty_draft_are_the_grammars_and_its_time_is_the_drafters() -> (
    None
):
    one = request(rule=script(2, 1, 3, 2, 2))
    target = TableTarget(TARGET)
    target.read(0, PROMPT[:-1])
    (result,) = decode_round([one], target, _Unsure(), Fixed(3))
    outcome = result.outcome()
    assert (outcome.source, outcome.considered, outcome.draft_s) == ("unsure", 1, 0.25)
    assert (outcome.proposed, outcome.forced) == (0, 5)
    assert [e.source for e in one.emitted[:-1]] == ["grammar"] * 4
    assert one.tally.by_drafter == {
        "grammar": DrafterStats(5, 5, 5),
        "unsure": DrafterStats(seconds=0.25),
    }


def test_a_copied_draft_is_cut_at_the_first_forbidden_token_and_goes_on_with_forced_ones() -> None:
    one = request(rule=script(9, 2, 1, 3, 3))
    target = TableTarget(TARGET)
    target.read(0, PROMPT[:-1])
    best = int(np.argmax(TARGET(PROMPT)))
    (result,) = decode_round([one], target, _Guess(best, 3, 3), Fixed(3))
    assert result.draft.tokens.tolist() == [best, 2, 1, 3, 3][: len(result.draft)]
    assert result.draft.forced == frozenset({1, 2, 3, 4})
    assert result.outcome().proposed == 1
    assert result.outcome().forced == 4
    assert result.outcome().width == 6


def test_forced_tokens_are_no_evidence() -> None:
    drafter = ChainDrafter(TableModel(TARGET), Proposal.COUPLED)
    seen: list[Evidence] = []

    class Listening(Fixed):
        def learn(self, outcomes: object, evidence: Sequence[Evidence]) -> None:
            seen.extend(evidence)

    rounds(request(rule=script(9, 1, 3, 9, 2, 2, 9)), drafter, Listening(5))
    assert len(seen) == 3


class _OwnForced(ChainDrafter):
    """A chain that drafts forced tokens by itself, like a head whose states need every token."""

    reads_forced = False


@pytest.mark.parametrize("name", ["chain of a head", "tree", "head tree", "lookahead"])
def test_forced_tokens_that_a_drafter_drafts_itself_are_no_evidence(name: str) -> None:
    own = {"chain of a head": lambda: _OwnForced(TableModel(TARGET), Proposal.COUPLED)}
    seen: list[int] = []
    free = {0, 3, 6, 8}
    one = request(rule=script(9, 1, 3, 9, 2, 2, 9, 1, 9))

    class Listening(tables.Broad):
        emitted = 0

        def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
            self.emitted = states[0].emitted
            return super().plan(states)

        def learn(self, outcomes: object, evidence: Sequence[Evidence]) -> None:
            seen.append(len(evidence))
            assert seen[-1] <= len(free & {*range(self.emitted, len(one.emitted))})

    rounds(one, {**DRAFTERS, **own}[name](), Listening())
    assert any(seen) or name == "lookahead"


def test_a_limit_inside_forced_tokens_is_kept_and_says_so() -> None:
    one = rounds(request(n=3, rule=script(2, 1, 3, 2, 2)), GrammarDrafter())
    assert [e.token for e in one.emitted] == [2, 1, 3]
    assert one.finish == "length"
    assert not one.processor.constraint.complete


def test_forced_tokens_never_fill_the_context_beyond_its_end() -> None:
    target = TableTarget(TARGET, capacity=5)
    one = request(n=4, rule=script(2, 1, 3, 2, 2, 2))
    rounds(one, GrammarDrafter(), target=target)
    assert target.length(0) <= 5


def test_a_long_stretch_is_drafted_in_parts() -> None:
    class Narrow(TableTarget):
        def deepest(self, sequences: int) -> int:
            return 31

    one = request(n=100, rule=script(*[2, 1] * 40))
    rounds(one, GrammarDrafter(), target=Narrow(TARGET))
    assert one.finish == "stop"
    assert one.tally.rounds == 3  # at most 31 drafted tokens a pass


def test_masks_of_every_draft_are_asked_for_before_the_pass() -> None:
    one = rounds(request(rule=script(9, 1, 3, 9, 2)), GrammarDrafter())
    assert sum(1 + n for n in one.processor.constraint.expected) >= 5
