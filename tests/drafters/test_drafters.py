"""Drafters propose within their budget, and their caches stay prefixes of what was committed."""

from __future__ import annotations

import numpy as np
import pytest
import tables
from hypothesis import given
from hypothesis import strategies as st

from localspec.core.logits import GREEDY, LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.plan import Budget
from localspec.core.values import Proposal
from localspec.drafters.base import Ask, Committed, Off
from localspec.drafters.cascade import Cascade
from localspec.drafters.lookup import ngram
from localspec.drafters.lookup.ngram import NGram
from localspec.drafters.model.cache import DraftCache
from localspec.drafters.model.chain import ChainDrafter
from localspec.drafters.model.interface import common_prefix
from localspec.testing import TableModel

TABLE = tables.random_table(5, v=4)


def ask(tokens: list[int], k: int, seq: int = 0) -> Ask:
    budget = Budget.chain(k)
    return Ask(seq, tokens, budget, Noise(0), LogitsProcessor(GREEDY, 4))


def longest_earlier_match(tokens: list[int], low: int, high: int, k: int) -> list[int]:
    """Prompt lookup written the slow way."""
    for n in range(min(high, len(tokens) - 1), low - 1, -1):
        suffix = tokens[-n:]
        for end in range(len(tokens) - 1, n - 1, -1):
            if tokens[end - n : end] == suffix:
                found = tokens[end : end + k]
                period = len(tokens) - end
                while len(found) < k:
                    found.append(found[-period])
                return found
    return []


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60), st.integers(1, 12))
def test_ngram_finds_the_last_longest_match(tokens: list[int], k: int) -> None:
    """Also when the tokens come one by one, as they do in a reply."""
    growing: list[int] = []
    drafter = NGram(2, 4)
    for token in tokens:
        growing.append(token)
        (draft,) = drafter.propose([ask(growing, k)])
        assert draft.tokens.tolist() == longest_earlier_match(growing, 2, 4, k)
        assert draft.proposal is Proposal.DETERMINISTIC
        assert drafter.length(0) == len(growing) - 1


def test_ngram_indexes_a_long_text_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """All replies wait for each; nothing is drafted until it is whole, and no text is read again
    that the target's reading has indexed.
    """
    monkeypatch.setattr(ngram, "AT_ONCE", 100)
    drafter, text = NGram(2, 4), [*range(40)] * 8 + [0, 1]
    drafter.prompt_read(0, text, 60)
    lengths, drafts = [drafter.length(0)], []
    for _ in range(4):
        (draft,) = drafter.propose([ask(text, 3)])
        lengths.append(drafter.length(0))
        drafts.append(draft.tokens.tolist())
    assert lengths == [59, 159, 259, 321, 321]
    assert drafts == [[], [], [2, 3, 4], [2, 3, 4]]


def test_ngram_forgets_another_request() -> None:
    drafter = NGram(1, 2)
    drafter.propose([ask([0, 1, 2, 0], 3)])
    other = [3, 3, 0]
    drafter.commit([Committed(0, other, other)])
    assert drafter.length(0) == 0
    (draft,) = drafter.propose([ask(other, 3)])
    assert len(draft) == 0


def test_model_drafts_greedily_what_its_table_says() -> None:
    model = TableModel(TABLE)
    (draft,) = ChainDrafter(model, Proposal.COUPLED).propose([ask([0, 1], 3)])
    text = [0, 1]
    for token in draft.tokens.tolist():
        assert token == int(np.argmax(TABLE(text)))
        text.append(token)
    assert len(draft) == 3
    assert model.cache[0] == text[:-1]


@pytest.mark.parametrize("accepted", [0, 1, 2, 3])
def test_rejected_tokens_leave_the_cache(accepted: int) -> None:
    model = TableModel(TABLE)
    drafter = ChainDrafter(model, Proposal.COUPLED)
    tokens = [0, 1]
    (draft,) = drafter.propose([ask(tokens, 3)])
    drafted = draft.tokens.tolist()
    own = (drafted[accepted] + 1) % 4 if accepted < 3 else 0
    new = [*drafted[:accepted], own]
    tokens += new
    drafter.commit([Committed(0, tokens, new)])
    assert tokens[: drafter.length(0)] == model.cache[0]
    drafter.propose([ask(tokens, 2)])
    assert model.cache[0][: len(tokens)] == tokens


def test_a_new_request_reuses_the_common_prefix() -> None:
    model = TableModel(TABLE)
    drafter = ChainDrafter(model, Proposal.COUPLED)
    drafter.propose([ask([0, 1, 2, 3], 1)])
    other = [0, 1, 3, 3, 2]
    drafter.commit([Committed(0, other, other)])
    assert model.cache[0] == other[:-1]


def test_a_cache_of_another_request_never_outlives_it() -> None:
    """A reply without drafting, then one whose draft is parked: only the common prefix stays."""
    model = TableModel(TABLE)
    drafter = ChainDrafter(model, Proposal.COUPLED)
    drafter.propose([ask([0, 1, 2, 3, 0, 1, 2], 1)])
    known = [0, 1, 3, 3]
    drafter.commit([Committed(0, known, [3])])
    assert model.cache[0] == [0, 1]
    assert drafter.length(0) == 2


def test_several_sequences_draft_in_one_call_each_with_its_budget() -> None:
    drafter = ChainDrafter(TableModel(TABLE), Proposal.SAMPLED)
    drafts = drafter.propose([ask([0], 3, seq=0), ask([1, 2], 0, seq=1), ask([2], 1, seq=2)])
    assert [len(d) for d in drafts] == [3, 0, 1]
    alone = ChainDrafter(TableModel(TABLE), Proposal.SAMPLED).propose([ask([0], 3)])
    assert drafts[0].tokens.tolist() == alone[0].tokens.tolist()


def test_the_draft_models_context_limits_the_draft() -> None:
    model = TableModel(TABLE, capacity=4)
    (draft,) = ChainDrafter(model, Proposal.COUPLED).propose([ask([0, 1, 2], 9)])
    assert len(draft) == 2
    (draft,) = ChainDrafter(model, Proposal.COUPLED).propose([ask([0] * 5, 9)])
    assert len(draft) == 0


def test_ids_that_only_the_target_has_are_not_fed_to_the_draft() -> None:
    (draft,) = ChainDrafter(TableModel(TABLE), Proposal.COUPLED).propose([ask([0, 77], 3)])
    assert len(draft) == 0


def test_a_draft_model_cannot_promise_other_proposals() -> None:
    with pytest.raises(ValueError, match="without replacement"):
        ChainDrafter(TableModel(TABLE), Proposal.WITHOUT_REPLACEMENT)


def test_a_cascade_takes_the_first_that_has_something() -> None:
    cascade = Cascade([NGram(2, 3), ChainDrafter(TableModel(TABLE), Proposal.COUPLED)])
    assert cascade.name == "ngram,model"
    repeating, fresh = ask([0, 1, 2, 0, 1], 2), ask([0, 1], 2, seq=1)
    sources = [d.source for d in cascade.propose([repeating, fresh])]
    assert sources == ["ngram", "model"]
    nothing = cascade.propose([ask([0, 1], 0, seq=2)])
    assert len(nothing[0]) == 0


def test_off_never_drafts() -> None:
    assert [len(d) for d in Off().propose([ask([0, 1, 0, 1], 4)])] == [0]


@given(st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)))
def test_common_prefix(a: list[int], b: list[int]) -> None:
    n = common_prefix(a, b)
    assert a[:n] == b[:n]
    assert n == min(len(a), len(b)) or a[n] != b[n]


def test_what_a_cache_has_of_another_reply_follows_both() -> None:
    cache, other = DraftCache(TableModel(TABLE)), [1, 2, 3]
    own = [1, 2, 3, 0, 1]
    cache.extend([(0, cache.missing(0, own), 0)])
    assert cache.common(0, other) == 3
    other += [0, 2]  # the reply goes on otherwise than the cache
    assert [cache.common(0, other), cache.common(0, other)] == [4, 4]
    cache.missing(0, own[:3])  # which is cut, and goes on like the reply
    assert cache.common(0, other) == 2
    cache.extend([(0, [3, 0, 2], 0)])
    assert cache.common(0, other) == 5
    assert cache.common(0, [1, 3]) == 1
