"""Divergences that `verify` calls near-ties, and those that it does not let pass."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

import numpy as np
import pytest
from conftest import Files

from localspec import GREEDY, Message, Options, ReplyRequest, Runtime, Sampling, cli
from localspec.bench.exactness import SettingComparison, Verification, verify
from localspec.bench.scoring import Divergence, Scorer
from localspec.bench.together import CompanyComparison, CompanyVerification
from localspec.cli.interrupt import CtrlC
from localspec.cli.verify_report import (
    DRAFTED,
    NOT_EXACT,
    TOGETHER,
    Words,
    closing_lines,
    compare,
    report,
)
from localspec.cli.working import Working
from localspec.core.drafter_registry import Branching
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.plan import PLAIN, RequestState
from localspec.decode.target_choice import TargetChoice
from localspec.policy.exercise import Exercise

ROW = np.array([0.0, 3.0, 2.9, 1.0, -4.0], np.float32)


def choice(sampling: Sampling, seed: int = 0) -> TargetChoice:
    noise = Noise(seed)
    return TargetChoice([1, 2], LogitsProcessor(sampling, len(ROW), noise=noise), noise)


def test_greedy_distance_is_half_the_gap() -> None:
    assert choice(GREEDY).distance(ROW, 1) == 0.0
    assert choice(GREEDY).distance(ROW, 2) == pytest.approx(0.05, rel=0.11)
    assert choice(GREEDY).distance(ROW, 4) == pytest.approx(3.5, rel=0.11)


@pytest.mark.parametrize("seed", range(20))
def test_a_token_beyond_the_border_can_be_close(seed: int) -> None:
    """Top-k of 2: token 3 is 1.9 behind token 2, so each must move by 0.95 at most to swap."""
    sampling = Sampling(temperature=1.0, top_k=2, top_p=1.0, min_p=0.0)
    assert choice(sampling, seed).distance(ROW, 3) >= 0.9


@pytest.mark.parametrize("seed", range(20))
def test_the_choice_itself_is_at_distance_zero(seed: int) -> None:
    chosen = choice(Sampling(temperature=1.0), seed)
    assert chosen.distance(ROW, chosen(ROW)) == 0.0


@pytest.fixture
def runtime(files: Files) -> Runtime:
    return Runtime.open(Options(model=str(files.target), draft=str(files.draft), draft_max=3))


def hello(sampling: Sampling, *, draft: bool = True) -> ReplyRequest:
    messages = (Message("user", "hello"),)
    return ReplyRequest(messages, sampling=sampling, seed=1, max_tokens=20, draft=draft)


def test_a_wrong_token_is_no_near_tie(runtime: Runtime) -> None:
    """Negative control: a reply that differs where the target was sure."""
    with runtime:
        plain = runtime.answer(hello(GREEDY, draft=False))
        scorer = Scorer(runtime)
        tokens = runtime.encode([Message("user", "hello")])
        row = scorer._rows(tokens, list(plain.tokens[:3]), 1)[-1]
        worst = int(np.argmin(row))
        changed = (*plain.tokens[:2], worst, *plain.tokens[3:])
        wrong = dataclasses.replace(plain, tokens=changed)
        found = scorer.examine("hello", plain, wrong, GREEDY, noise=1e-3)
        assert not found.near_tie
        assert found.position == 2
        assert found.gap == pytest.approx(float(row.max() - row.min()), rel=0.2)
        shorter = dataclasses.replace(plain, tokens=plain.tokens[:-1])
        cut = scorer.examine("hello", plain, shorter, GREEDY, noise=1e9)
        assert not cut.near_tie


def test_an_infinite_gap_is_valid_json() -> None:
    apart = Divergence("hello", 3, 1, 2, float("inf"), near_tie=False)
    compared = SettingComparison(
        temperature=0.0, replies=1, tokens=4, rounds=4, verified=4, divergences=(apart,)
    )
    found = report(Verification(0.0, 0.0, (compared,), {1: 4}), DRAFTED)
    text = json.dumps(found, allow_nan=False)
    assert json.loads(text)["settings"][0]["divergences"][0]["gap"] is None


def test_strict_mode_whose_logits_differ_is_not_exact_whatever_the_replies() -> None:
    same = SettingComparison(temperature=0.0, replies=2, tokens=8, rounds=8, verified=8)
    assert NOT_EXACT in closing_lines(
        Verification(1e-6, 0.0, (same,), {1: 8}, strict=True), DRAFTED
    )
    said = closing_lines(Verification(1e-6, 0.0, (same,), {1: 8}), DRAFTED)
    assert said[-1] == "exact: all 2 replies identical"


@pytest.mark.parametrize(
    ("words", "result"),
    [
        (DRAFTED, Verification(0.0, 0.0, (SettingComparison(temperature=0.0, replies=2),), {1: 8})),
        (
            TOGETHER,
            CompanyVerification(
                3, 0.0, 0.0, (CompanyComparison(temperature=0.0, replies=2),), strict=True
            ),
        ),
    ],
)
def test_where_nothing_was_checked_nothing_is_exact(
    words: Words, result: Verification | CompanyVerification
) -> None:
    assert closing_lines(result, words)[-1].startswith("nothing was checked: no ")
    assert report(result, words)["exact"] is None


def test_replies_without_a_draft_are_no_proof(
    files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    """They were called exact, though nothing had been compared but plain decoding with itself."""
    asked = ["verify", str(files.target), "--draft-max", "0", "--limit", "1", "-n", "8", "-t", "0"]
    assert cli.call(asked) == 1
    assert "nothing was checked: no token was drafted" in capfd.readouterr().out


def test_an_empty_reply_differs_from_one_that_is_not(runtime: Runtime) -> None:
    with runtime:
        plain = runtime.answer(hello(GREEDY, draft=False))
        empty = dataclasses.replace(plain, tokens=())
        for one, other in ((empty, plain), (plain, empty)):
            found = Scorer(runtime).examine("hello", one, other, GREEDY, noise=1e9)
            assert (found.position, found.near_tie) == (0, False)


def test_replies_go_on_unharmed_between_measurements(runtime: Runtime) -> None:
    with runtime:
        before = runtime.answer(hello(Sampling()))
        result = verify(runtime, ["a", "b"], [Sampling()], max_tokens=10, seed=3)
        after = runtime.answer(hello(Sampling()))
    assert result.exact
    assert before.tokens == after.tokens


@pytest.mark.parametrize("drafter", [None, ("tree",)])
def test_it_drafts_what_a_chat_may_draft_and_measures_noise_at_the_widths_of_that(
    files: Files, drafter: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: set[int] = set()
    rows = Scorer._rows

    def watched(scorer: Scorer, known: list[int], text: list[int], width: int) -> np.ndarray:
        measured.add(width)
        return rows(scorer, known, text, width)

    monkeypatch.setattr(Scorer, "_rows", watched)
    options = Options(model=str(files.target), draft=str(files.draft), drafter=drafter)
    with Runtime.open(options) as runtime:
        result = verify(runtime, ["a", "b"], [GREEDY, Sampling()], max_tokens=60, seed=3)
    assert result.exact
    assert max(result.widths) > 12
    assert measured >= set(result.widths)
    assert json.loads(json.dumps(report(result, DRAFTED)))["widths"]["1"] > 0


def test_an_exercise_has_every_kind_of_draft_within_its_bounds() -> None:
    branching = {"tree": Branching(), "lookahead": Branching(leaves=4, least=2)}
    policy = Exercise(["suffix", "tree", "lookahead"], branching, nodes=31)
    state = RequestState(0, 10, 3, "greedy")
    plans = [policy.plan([state])[0] for _ in range(400)]
    budgets = [step.budget for plan in plans for step in plan.steps]
    assert max(budget.nodes for budget in budgets) == 31
    assert {budget.leaves for budget in budgets} >= {0, 1, 2, 3, 4, 8, 12, 16}
    assert {plan.steps[0].source for plan in plans if plan.steps} == {"suffix", "tree", "lookahead"}
    assert any(step.probe for plan in plans for step in plan.steps)
    assert PLAIN in plans


class _Judging:
    """A comparison whose noise is seen after a divergence was found."""

    def __init__(self) -> None:
        apart = Divergence("p", 3, 1, 2, 0.4, near_tie=False)
        self.row = SettingComparison(
            temperature=0.0, replies=1, tokens=4, rounds=4, verified=4, divergences=(apart,)
        )

    def steps(self) -> Iterator[SettingComparison]:
        yield self.row

    def so_far(self) -> Verification:
        return Verification(1.0, 0.1, (self.row.judged(1.0),), {1: 1})


def test_a_row_is_judged_by_all_noise_seen_like_the_conclusion(
    capsys: pytest.CaptureFixture[str],
) -> None:
    facts = {"kernels": "k", "workers": "", "strict": ""}
    assert compare(_Judging(), DRAFTED, 1, facts, Working(CtrlC()), as_json=False)
    said = capsys.readouterr().out
    assert "near-tie" in said
    assert "NOT A NEAR-TIE" not in said
    assert "exact up to near-ties: 1 of 1 replies" in said
