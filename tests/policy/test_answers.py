"""What the answers of drafters that copy take, where several requests wait for those of all."""

from __future__ import annotations

import random

import numpy as np
import policy_lab.report
import pytest
from policy_lab import world
from policy_lab.curves import CURVES, DISTURBANCES
from policy_lab.evidence import Copies, Recorded
from policy_lab.report import Setting
from policy_lab.world import Asking

from localspec.policy.budgets import ReplyBudget

BY_NAME = {curve.name: curve for curve in CURVES}
CHAIN = 8
"""Tokens of each match."""
NINE_IN_TEN = 62
"""The byte of that confidence."""


def text(tokens: int, right: float, rng: random.Random, nothing: int = 0) -> Recorded:
    """A reply with a match at every place, of which each token stands as often as given; there is
    ``nothing`` to copy at so many places before.
    """
    lengths, accepted = np.full(tokens, CHAIN, np.uint8), np.zeros(tokens, np.uint8)
    lengths[:nothing] = 0
    for place in range(nothing, tokens):
        most, stand = min(CHAIN, tokens - place - 1), 0
        while stand < most and rng.random() < right:
            stand += 1
        accepted[place] = stand
    confidences = np.full(int(lengths.sum()), NINE_IN_TEN, np.uint8)
    return Recorded("x", 0.0, 100, {"suffix": Copies(lengths, accepted, confidences)})


def at_once(
    monkeypatch: pytest.MonkeyPatch, ms: float, texts: list[Recorded], curve: str = "server"
) -> float:
    """How many times as fast as plain decoding, where an answer takes so many milliseconds."""
    asking = {**world.ASKING, "suffix": Asking(ask=ms)}
    monkeypatch.setattr(world, "ASKING", asking)
    monkeypatch.setattr(policy_lab.report, "ASKING", asking)
    setting = Setting(BY_NAME[curve], DISTURBANCES[0], ("suffix",))
    played = setting.world(setting.controller(0), 0).play(texts, len(texts))
    return sum(reply.at for reply in played) / sum(reply.units for reply in played)


@pytest.mark.parametrize(("requests", "ms"), [(8, 0.09), (32, 0.05)])
def test_answers_without_a_match_cost_requests_together_no_more_than_one_may_lose(
    monkeypatch: pytest.MonkeyPatch, requests: int, ms: float
) -> None:
    """Each took less than a hundredth of a pass, and that of all others besides: 0.94, 0.90."""
    nothing = [text(120, 0.0, random.Random(i), nothing=120) for i in range(requests)]
    assert at_once(monkeypatch, ms, nothing) > 0.97


@pytest.mark.parametrize(
    ("requests", "ms", "nothing", "least"), [(8, 0.05, 0, 1.6), (4, 0.09, 150, 1.3)]
)
def test_what_answers_cost_is_no_reason_against_copies_that_pay(
    monkeypatch: pytest.MonkeyPatch, requests: int, ms: float, nothing: int, least: float
) -> None:
    """Neither against those of others nor, where a text begins with nothing to copy, one's own."""
    rng = random.Random(0)
    texts = [text(300 + nothing, 0.7, rng, nothing) for _ in range(requests)]
    assert at_once(monkeypatch, ms, texts) > least


def test_what_a_reply_may_lose_by_answers_is_apart_from_what_its_copies_lost() -> None:
    account = ReplyBudget()
    account.settle(100, -30.0)
    failed = account.left_for_answers, account.left_for_copies
    assert failed[0] > 2
    account.settle(0, -1.0, answers=1.0)
    assert (account.left_for_answers, account.left_for_copies) == (failed[0] - 1, failed[1])


def test_what_was_won_pays_for_answers_or_for_copies_of_others_but_not_twice() -> None:
    account = ReplyBudget()
    account.settle(100, 100.0)
    account.settle(0, -100.0, answers=100.0)
    assert account.left_for_copies < 6
    without, paid = ReplyBudget(), ReplyBudget()
    without.settle(100, 0.0)
    paid.settle(100, -2.0, answers=2.0)
    assert paid.left_for_copies == without.left_for_copies, "a debt for answers forbids no copies"
