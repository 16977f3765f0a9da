"""What plain decoding would have taken, told from a reply with drafts."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.core.values import Draft, Proposal, Verdict, chain_parents, no_draft
from localspec.decode.stats import RequestStats


def tally(plain: int = 0, drafted: int = 0, passes: float = 0.1, own: float = 0.1) -> RequestStats:
    """Rounds without and with a draft; each has a pass of ``passes`` seconds, ``own`` seconds that
    a policy books with it, and half a second of drafting if there is a draft.
    """
    found = RequestStats()
    ids = np.array([1, 2], np.int32)
    draft = Draft(ids, chain_parents(2), Proposal.COUPLED, None, "model", seconds=0.5)
    for _ in range(plain):
        found.add(no_draft("model"), Verdict((), 5, 0), passes, passes + own)
    for _ in range(drafted):
        found.add(draft, Verdict((0,), 5, 1), passes, passes + own + draft.seconds)
    return found


def test_a_reply_with_enough_rounds_without_a_draft_tells_by_itself() -> None:
    assert tally(plain=4, drafted=9).plain_token(99.0, 0.0, 22) == pytest.approx(0.1)


def test_else_it_is_what_the_policy_expects_less_its_own_work() -> None:
    assert tally(drafted=9).plain_token(0.08, 0.0, 18) == pytest.approx(0.04)


def test_a_machine_that_got_slower_makes_plain_decoding_slower_too() -> None:
    calm, busy = tally(drafted=9), tally(drafted=9, passes=0.3, own=0.3)
    assert busy.plain_token(0.24, 0.0, 18) == pytest.approx(3 * calm.plain_token(0.08, 0.0, 18))


def test_what_every_token_costs_beside_its_pass_is_paid_in_plain_decoding_too() -> None:
    found = tally(plain=4)
    found.overhead_seconds = 0.2
    whole = found.verify_seconds + found.overhead_seconds + 8.0
    assert found.plain_token(0.1, whole, 4) == pytest.approx(0.1 + 8.0 / 4)


def test_nothing_is_claimed_where_nothing_is_known() -> None:
    assert tally(drafted=3).plain_token(None, 1.0, 6) is None
    assert tally().plain_token(0.1, 1.0, 0) is None
    assert tally(plain=2).plain_token(None, 1.0, 2) == pytest.approx(0.2)
