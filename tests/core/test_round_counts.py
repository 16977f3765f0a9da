"""One account of rounds: the same figures wherever they are shown."""

import pytest

from localspec.core.events import Round, Speculation
from localspec.core.reply_tally import ReplyTally
from localspec.core.round_counts import DrafterStats, RoundCounts
from tui.session.meter import Meter


def a_round(drafted: int, verified: int, accepted: int, **more: float) -> Round:
    times = (0.25, 0.5, 1.0)
    on = Speculation("on")
    return Round(drafted, verified, accepted, accepted + 1, *times, "model", 9, on, **more)


SIBLING = a_round(6, 4, 2)
"""A tree: the second token is another's sibling, and a leaf."""
MISS = a_round(6, 6, 1, corrected=1)
FORCED = a_round(6, 5, 4, forced=3, forced_accepted=3, corrected=1)
PROBED = a_round(2, 1, 0, corrected=1, probe_seconds=0.125)


@pytest.mark.parametrize(
    ("rounds", "shares"),
    [
        ([], ()),
        ([SIBLING], (1.0, 1.0)),
        ([MISS], (1.0, 0.0)),
        ([SIBLING, MISS], (1.0, 0.5)),
        ([a_round(0, 0, 0), a_round(3, 1, 0, corrected=1)], (0.0,)),
    ],
)
def test_a_place_is_judged_as_far_as_the_draft_went_on_behind_accepted_tokens(rounds, shares):
    assert RoundCounts.of(rounds).per_position == shares


def test_forced_tokens_and_probes_are_not_those_of_the_drafter():
    assert RoundCounts.of([FORCED]).by_drafter == {
        "grammar": DrafterStats(3, 3, 3),
        "model": DrafterStats(3, 2, 1, 0.25),
    }
    assert RoundCounts.of([PROBED]).by_drafter == {"model": DrafterStats(2, 1, 0, 0.125)}


def test_what_a_drafter_took_is_its_own_where_it_drafted_nothing_or_a_grammar_all():
    refused, looked = a_round(0, 0, 0), a_round(0, 0, 0, probe_seconds=0.25)
    forced = a_round(3, 3, 3, forced=3, forced_accepted=3)
    assert RoundCounts.of([refused]).by_drafter == {"model": DrafterStats(seconds=0.25)}
    assert RoundCounts.of([looked]).by_drafter == {}
    assert RoundCounts.of([forced, MISS]).by_drafter == {
        "grammar": DrafterStats(3, 3, 3),
        "model": DrafterStats(6, 6, 1, 0.5),
    }


def test_the_chat_and_a_stopped_reply_have_the_same_account():
    rounds = [SIBLING, MISS, FORCED, PROBED, a_round(0, 0, 0)]
    meter, tally = Meter(), ReplyTally(1)
    for done in rounds:
        meter.add(done)
        tally.take(done)
    stats = tally.finished("interrupt").reply.stats
    wanted = RoundCounts.of(rounds)
    assert meter.tally == wanted
    for name in ("rounds", "drafted", "verified", "accepted", "by_drafter", "per_position"):
        assert getattr(stats, name) == getattr(wanted, name)


def test_places_of_a_draft_that_cannot_be_cost_no_memory():
    most = 1 << 60
    assert len(RoundCounts.of([a_round(most, most, most, corrected=most)]).judged_at) <= 512
