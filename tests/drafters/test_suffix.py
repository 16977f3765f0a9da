"""Suffix drafting against the slow way of finding the same, and within its bounds."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
import tables
from hypothesis import given
from hypothesis import strategies as st
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from localspec.core.logits import GREEDY, LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.plan import Budget
from localspec.core.values import Proposal
from localspec.drafters.base import Ask, Committed, Drafter
from localspec.drafters.lookup import suffix
from localspec.drafters.lookup.ngram import NGram
from localspec.drafters.lookup.suffix import Suffix
from localspec.drafters.lookup.suffix_index import LONGEST, SIZES, Occurrence, SuffixIndex
from localspec.drafters.model.chain import ChainDrafter
from localspec.testing import TableModel

TEXTS = st.lists(st.integers(0, 2), max_size=60)


def ask(tokens: list[int], k: int) -> Ask:
    budget = Budget.chain(k)
    return Ask(0, tokens, budget, Noise(0), LogitsProcessor(GREEDY, 300))


def agreement(text: list[int], end: int, longest: int) -> int:
    n = 0
    while n < min(end, longest) and text[end - 1 - n] == text[len(text) - 1 - n]:
        n += 1
    return n


@given(TEXTS)
def test_every_place_is_found_with_its_real_length(text: list[int]) -> None:
    suffixes = SuffixIndex()
    suffixes.follow(text)
    found = suffixes.matches(most=1000)
    lengths = {end: agreement(text, end, LONGEST) for end in range(1, len(text))}
    expected = {Occurrence(end, n) for end, n in lengths.items() if n >= min(SIZES)}
    assert set(found) == expected
    assert len(found) == len(set(found))


@given(TEXTS)
def test_the_places_that_agree_most_come_first(text: list[int]) -> None:
    suffixes = SuffixIndex()
    suffixes.follow(text)
    found = suffixes.matches(1000)
    sizes = [max(n for n in SIZES if n <= match.length) for match in found]
    assert sizes == sorted(sizes, reverse=True)
    for size in set(sizes):  # of those, the latest
        ends = [m.end for m, n in zip(found, sizes, strict=True) if n == size]
        assert ends == sorted(ends, reverse=True)
    assert suffixes.matches(3) == found[:3]


@given(TEXTS, TEXTS, st.integers(0, 60))
def test_what_is_taken_back_leaves_no_trace(first: list[int], then: list[int], keep: int) -> None:
    suffixes, fresh = SuffixIndex(), SuffixIndex()
    suffixes.follow(first)
    other = first[:keep] + then
    suffixes.follow(other)
    fresh.follow(other)
    assert suffixes.text == fresh.text == other
    assert suffixes.matches(1000) == fresh.matches(1000)


@given(TEXTS, TEXTS, st.integers(1, 20))
def test_a_text_taken_in_by_pieces_is_the_same_text(
    first: list[int], then: list[int], most: int
) -> None:
    suffixes, fresh = SuffixIndex(), SuffixIndex()
    suffixes.follow(first)
    calls = 1
    while not suffixes.follow(then, most=most):
        calls += 1
    fresh.follow(then)
    assert calls <= 1 + len(then) // most
    assert suffixes.text == fresh.text == then
    assert suffixes.matches(1000) == fresh.matches(1000)


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tokens that were taken in and back, one count after the other."""
    found: list[int] = []
    take_in, take_back = SuffixIndex._take_in, SuffixIndex._take_back

    def taken_in(self: SuffixIndex, token: int) -> None:
        found.append(1)
        take_in(self, token)

    def taken_back(self: SuffixIndex, length: int) -> None:
        found.append(len(self.text) - length)
        take_back(self, length)

    monkeypatch.setattr(SuffixIndex, "_take_in", taken_in)
    monkeypatch.setattr(SuffixIndex, "_take_back", taken_back)
    return found


@pytest.mark.parametrize("common", [0, 100, 499, 500, 501, 900, 1000])
@pytest.mark.parametrize("earlier", [0, 700])
def test_what_another_text_does_not_have_goes_by_pieces_too(
    touched: list[int], common: int, earlier: int
) -> None:
    before = [*range(5000, 5000 + earlier)]
    suffixes, first = SuffixIndex(before), [*range(1000)]
    suffixes.follow(first)
    for then in ([*first[:common], *range(2000, 2250)], first[:common], []):
        touched.clear()
        done, most = False, 64
        for _ in range(40):
            done = suffixes.follow(then, most=most)
            assert sum(touched) <= most
            assert len(suffixes) <= len(then)
            touched.clear()
            if done:
                break
        assert done
        assert suffixes.text == [*before, *then]
        fresh = SuffixIndex(before)
        fresh.follow(then)
        assert fresh._last == suffixes._last
        assert fresh._before == suffixes._before


def test_no_reply_waits_until_all_of_another_one_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, touched: list[int]
) -> None:
    """Neither at the end of a reply, nor where the next one begins, also in another sequence."""
    monkeypatch.setattr(suffix, "AT_ONCE", 100)
    drafter = Suffix(earlier=[[*range(500, 900)]])
    long, other = [*range(400)], [*range(200), *range(900, 950), 0, 1]
    touched.clear()

    def most_at_once(step: Callable[[], object], times: int = 1) -> int:
        counts = []
        for _ in range(times):
            step()
            counts.append(sum(touched))
            touched.clear()
        return max(counts)

    assert most_at_once(lambda: drafter.prompt_read(0, long, 400), 4) == 100
    assert most_at_once(lambda: drafter.prompt_read(0, other, 252), 1) == 100
    assert most_at_once(lambda: drafter.commit([Committed(0, long[:9], [1])])) <= 100
    assert most_at_once(lambda: drafter.prompt_read(0, other, 252), 8) <= 100
    (draft,) = drafter.propose([ask(other, 3)])
    assert draft.tokens.tolist() == [2, 3, 4]
    touched.clear()
    assert most_at_once(lambda: drafter.close(0)) <= 100
    for seq in (0, 1):
        assert most_at_once(lambda seq=seq: drafter.prompt_read(seq, other, 252), 9) <= 100
        assert drafter.length(seq) == 252


def test_a_long_text_that_was_restored_is_indexed_over_several_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All replies wait while it is; nothing is drafted until it is whole."""
    monkeypatch.setattr(suffix, "AT_ONCE", 100)
    drafter, text = Suffix(), [*range(40)] * 8 + [0, 1]
    lengths, drafts = [], []
    for _ in range(5):
        (draft,) = drafter.propose([ask(text, 3)])
        lengths.append(drafter.length(0))
        drafts.append(draft.tokens.tolist())
    assert lengths == [100, 200, 300, 322, 322]
    assert drafts == [[], [], [], [2, 3, 4], [2, 3, 4]]


def test_a_quotation_is_drafted_to_its_end() -> None:
    quoted = list(range(100, 140))
    tokens = [*quoted, 1, 2, 3, *quoted[:6]]
    (draft,) = Suffix().propose([ask(tokens, 32)])
    assert draft.tokens.tolist() == quoted[6:38]
    assert draft.proposal is Proposal.DETERMINISTIC


def test_the_continuation_that_followed_more_often_is_drafted() -> None:
    tokens = [7, 8, 1, 5, 7, 8, 2, 5, 7, 8, 1, 5, 7, 8, 1, 5, 9, 7, 8]
    (draft,) = Suffix().propose([ask(tokens, 2)])
    assert draft.tokens.tolist() == [1, 5]


def test_a_longer_agreement_outweighs_frequent_short_ones() -> None:
    tokens = [3, 4, 5, 6, 7, 8, 1, 0, 7, 8, 2, 0, 7, 8, 2, 0, 3, 4, 5, 6, 7, 8]
    (draft,) = Suffix().propose([ask(tokens, 1)])
    assert draft.tokens.tolist() == [1]


def test_where_places_agree_equally_the_original_is_copied_not_its_edit() -> None:
    tokens = [7, 8, 1, 5, 7, 8, 2, 6, 7, 8]
    (draft,) = Suffix().propose([ask(tokens, 1)])
    assert draft.tokens.tolist() == [1]


def test_a_single_token_that_was_there_before_is_followed_by_what_followed_it() -> None:
    (draft,) = Suffix().propose([ask([3, 1, 4, 9, 3], 3)])
    assert draft.tokens.tolist() == [1, 4, 9]
    (draft,) = Suffix(min_match=2).propose([ask([3, 1, 4, 9, 3], 3)])
    assert not len(draft)


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.03, 0.1]))
def test_quotations_and_edits_are_drafted_no_worse_than_by_prompt_lookup(
    seed: int, edited: float
) -> None:
    rng = random.Random(seed)
    text = [rng.randrange(60) for _ in range(150)]
    reply = [rng.randrange(60) if rng.random() < edited else token for token in text]
    lookup = LlamaPromptLookupDecoding(num_pred_tokens=10)

    def looked_up(tokens: list[int]) -> list[int]:
        return [int(token) for token in lookup(np.array(tokens, np.intc))]

    drafter = Suffix()

    def drafted(tokens: list[int]) -> list[int]:
        return drafter.propose([ask(tokens, 10)])[0].tokens.tolist()

    assert _rounds(drafted, text, reply) <= 1.1 * _rounds(looked_up, text, reply) + 2


def _rounds(guess: Callable[[list[int]], list[int]], prompt: list[int], reply: list[int]) -> int:
    """Rounds that a reply takes whose text is known."""
    tokens, said, rounds = [*prompt, reply[0]], 1, 0
    while said < len(reply):
        stood = 0
        for token in guess(tokens):
            if said + stood == len(reply) - 1 or token != reply[said + stood]:
                break
            stood += 1
        tokens += reply[said : said + stood + 1]
        said, rounds = said + stood + 1, rounds + 1
    return rounds


def test_a_text_that_repeats_itself_goes_on_repeating() -> None:
    (draft,) = Suffix().propose([ask([1, 2, 3, 1, 2, 3, 1, 2, 3], 7)])
    assert draft.tokens.tolist() == [1, 2, 3, 1, 2, 3, 1]


class _Unless:
    """Goes on while the confidence is high."""

    def __init__(self, least: float) -> None:
        self.least = least

    def more(self, confidences: list[float]) -> bool:
        return confidences[-1] >= self.least

    def further(self, confidences: list[float]) -> bool:
        return True


def test_a_doubtful_match_is_less_sure_than_a_long_one() -> None:
    """The pace, not the match, decides how far; what it refused is judged all the same."""
    doubtful = [7, 8, 1, 9, 7, 8, 2, 9, 7, 8]
    sure = [*range(20), 50, *range(20)]
    for tokens, drafts in ((doubtful, 0), (sure, 4)):
        asked = ask(tokens, 4)
        drafter = Suffix()
        (draft,) = drafter.propose([Ask(**{**_fields(asked), "pace": _Unless(0.8)})])
        assert len(draft) == drafts
        tokens.append(1)
        evidence = drafter.commit([Committed(0, tokens, [1])])
        assert len(evidence) == 1


def test_guesses_of_an_interrupted_round_are_not_judged_by_the_next_request() -> None:
    drafters: list[Drafter] = [
        Suffix(),
        NGram(1, 2),
        ChainDrafter(TableModel(tables.random_table(3, v=300)), Proposal.COUPLED),
    ]
    for drafter in drafters:
        tokens = [1, 2, 3, 1, 2]
        assert len(drafter.propose([ask(tokens, 4)])[0])
        other = [1, 2, 3, 1, 2, 9]  # the same text, asked again, and not drafted for
        assert drafter.commit([Committed(0, other, [9])]) == []
        assert len(drafter.propose([ask(tokens, 4)])[0])
        tokens.append(9)
        assert len(drafter.commit([Committed(0, tokens, [9])])) == 1


def _fields(asked: Ask) -> dict[str, object]:
    return {name: getattr(asked, name) for name in asked.__dataclass_fields__}


def test_nothing_of_another_chat_is_drafted() -> None:
    drafter = Suffix()
    secret = list(range(100, 120))
    drafter.propose([ask([*secret, *secret[:4]], 4)])
    tokens = [1, 2, *secret[:4]]
    drafter.commit([Committed(0, tokens, tokens)])
    (draft,) = drafter.propose([ask(tokens, 4)])
    assert len(draft) == 0


EARLIER = [[5, 6, 7, 8], [9, 9, 1]]


@given(TEXTS, TEXTS)
def test_earlier_texts_stay_in_front_of_every_text(first: list[int], then: list[int]) -> None:
    suffixes = SuffixIndex(earlier=[5, 6, 7, 8, -1])
    for text in (first, then):
        suffixes.follow(text)
        assert suffixes.text == [5, 6, 7, 8, -1, *text]
        assert len(suffixes) == len(text)
    fresh = SuffixIndex(earlier=[5, 6, 7, 8, -1])
    fresh.follow(then)
    assert suffixes.matches(1000) == fresh.matches(1000)


def test_earlier_chats_are_drafted_from_where_they_were_asked_for() -> None:
    assert not len(Suffix().propose([ask([1, 5, 6], 4)])[0])
    drafter = Suffix(earlier=EARLIER)
    for _ in range(2):
        (draft,) = drafter.propose([ask([1, 5, 6], 4)])
        assert draft.tokens.tolist() == [7, 8]  # and no further: another text follows
        assert drafter.length(0) == 3
        drafter.close(0)
        assert drafter.length(0) == 0


@given(st.lists(st.lists(st.integers(0, 2), max_size=9), max_size=4), TEXTS)
def test_no_border_between_earlier_chats_is_ever_drafted(
    earlier: list[list[int]], text: list[int]
) -> None:
    (draft,) = Suffix(earlier=earlier).propose([ask([*text, 1], 30)])
    assert all(token >= 0 for token in draft.tokens)


@pytest.mark.slow
def test_memory_is_bounded_by_the_length_of_the_text() -> None:
    """A day of sixty chats: what is kept is that of the last chat."""
    rng, length = random.Random(0), 2_000
    drafter = Suffix()
    kept = []
    tracemalloc.start()
    for _ in range(60):
        tokens = [rng.randrange(300) for _ in range(length)]
        drafter.propose([ask(tokens, 4)])
        kept.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert kept[-1] < 1.2 * kept[2]
    assert kept[-1] < 800 * length
    assert np.diff(kept[20:]).mean() < 1_000
