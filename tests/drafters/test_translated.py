"""A draft of another vocabulary: exact like any other, and as good as the same one in the target's.

The tables' target has five tokens. The draft has them in another order, or lacks some, or has more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import tables
from frequencies import FALSE_ALARM, p_value

from localspec.core.errors import ContextFullError
from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.noise import Noise
from localspec.core.plan import Budget
from localspec.core.values import Ids, Proposal
from localspec.decode.verifiers import Match, Rejection
from localspec.drafters.base import Ask, Off
from localspec.drafters.model.chain import ChainDrafter
from localspec.drafters.model.cross_vocabulary import TranslatedModel
from localspec.testing import Fixed, Table, TableModel

V = 5
TARGET = tables.random_table(1, v=V)
SETTINGS = {
    "greedy": Sampling(temperature=0),
    "warm": tables.WARM,
    "penalised": Sampling(temperature=1, top_k=3, top_p=0.9, min_p=0.05, presence_penalty=0.2),
}


@dataclass(frozen=True)
class Dictionary:
    """A `Translation` by a table: what each token of the target is in the draft's vocabulary."""

    words: tuple[tuple[int, ...], ...]
    start: tuple[int, ...] = ()

    @property
    def n_target(self) -> int:
        return len(self.words)

    @property
    def targets(self) -> Ids:
        return np.array([i for i, w in enumerate(self.words) if len(w) == 1], np.int32)

    @property
    def drafts(self) -> Ids:
        return np.array([w[0] for w in self.words if len(w) == 1], np.int32)

    def read(self, token: int) -> tuple[int, ...]:
        return self.words[token]


def permuted(table: Table, words: Dictionary) -> Table:
    """The same table in the draft's ids; only for translations of one token each."""
    back = {w[0]: i for i, w in enumerate(words.words)}
    return lambda tokens: table([back[t] for t in tokens])[np.argsort(words.drafts)]


ANOTHER_ORDER = Dictionary(((3,), (0,), (4,), (1,), (2,)))
TWO_LACKING = Dictionary(((2,), (0, 1), (0,), (1, 1), (1,)))
MORE = Dictionary(((6,), (5,), (1,), (0,), (3,)), start=(7,))
CASES = {
    "another order": (ANOTHER_ORDER, permuted(TARGET, ANOTHER_ORDER)),
    "two lacking": (TWO_LACKING, tables.random_table(5, v=3)),
    "more": (MORE, tables.random_table(6, v=8)),
}


def drafter(case: str, proposal: Proposal) -> tuple[ChainDrafter, TableModel]:
    words, table = CASES[case]
    model = TableModel(table)
    return ChainDrafter(TranslatedModel(model, words), proposal), model


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("case", CASES)
def test_match_gives_the_text_of_plain_decoding(case: str, setting: str) -> None:
    for seed in range(40):
        plain = tables.decode(TARGET, Off(), Match(), seed, 24, sampling=SETTINGS[setting])
        across, _ = drafter(case, Proposal.COUPLED)
        found = tables.decode(
            TARGET, across, Match(), seed, 24, sampling=SETTINGS[setting], policy=Fixed(4)
        )
        assert found == plain


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0, 1])
def test_rejection_gives_the_distribution_of_the_target(missing: int) -> None:
    """Three tokens as in the tests of rejection; with one missing, q never proposes it."""
    words = Dictionary(((2,), (0,), (1,)) if not missing else ((1,), (0, 0), (0,)))
    model = TableModel(tables.random_table(7, v=3 - missing, sharpness=1.0))
    across = ChainDrafter(TranslatedModel(model, words), Proposal.SAMPLED)
    assert p_value(across, Rejection(), 4_200) > FALSE_ALARM


def test_a_target_in_another_order_is_a_perfect_draft_of_itself() -> None:
    across, _ = drafter("another order", Proposal.COUPLED)
    for seed in range(20):
        target = tables.TableTarget(TARGET)
        target.read(0, tables.PROMPT[:-1])
        processor = LogitsProcessor(tables.WARM, V)
        request = tables.Request(
            0,
            list(tables.PROMPT),
            processor,
            Noise(seed),
            20,
        )
        while request.running:
            tables.decode_round([request], target, across, Fixed(3))
        assert request.tally.accepted == request.tally.verified > 0


def test_nothing_is_proposed_that_the_draft_does_not_share() -> None:
    across, _ = drafter("two lacking", Proposal.SAMPLED)
    processor = LogitsProcessor(tables.WARM, V)
    for seed in range(50):
        ask = Ask(0, [0, 2, 4], Budget.chain(4), Noise(seed), processor)
        (draft,) = across.propose([ask])
        assert set(draft.tokens.tolist()) <= {0, 2, 4}
        assert draft.probs is not None
        for q in draft.probs:
            assert set(q.ids.tolist()) <= {0, 2, 4}
            assert q.probs.sum() == pytest.approx(1)


def read_by(case: str, *steps: Sequence[int] | int) -> list[int]:
    """The draft's tokens after tokens were appended (lists) and cut to a length (numbers)."""
    words, table = CASES[case]
    model = TableModel(table)
    across = TranslatedModel(model, words)
    for step in steps:
        if isinstance(step, int):
            across.truncate(0, step)
        else:
            across.extend([(0, step, 1)])
    return model.cache[0]


def test_the_draft_reads_every_token_in_its_own_spelling_and_forgets_it_whole() -> None:
    assert read_by("two lacking", [0, 1, 2, 3]) == [2, 0, 1, 0, 1, 1]
    assert read_by("two lacking", [0, 1, 2, 3], 3) == [2, 0, 1, 0]
    assert read_by("two lacking", [0, 1, 2, 3], 1, [1]) == [2, 0, 1]
    assert read_by("more", [0, 1], 0, [2, 3]) == [7, 1, 0]


def test_rows_follow_tokens_of_the_target_whatever_their_spelling() -> None:
    words, table = CASES["two lacking"]
    across = TranslatedModel(TableModel(table), words)
    (rows,) = across.extend([(0, [0, 1, 3, 2], 3)])
    for row, held in zip(rows, ([2, 0, 1], [2, 0, 1, 1, 1], [2, 0, 1, 1, 1, 0]), strict=True):
        np.testing.assert_array_equal(row[words.targets], table(held)[words.drafts])
        assert np.isneginf(row[[1, 3]]).all()


class Narrow(TableModel):
    """Has room for nine tokens, and says so only when asked for more."""

    def extend(self, work: Sequence[tuple[int, Sequence[int], int]]) -> list[np.ndarray]:
        if any(len(self.cache.get(seq, ())) + len(tokens) > 9 for seq, tokens, _ in work):
            raise ContextFullError("full")
        return super().extend(work)


def test_several_sequences_keep_their_own_books() -> None:
    words, table = CASES["two lacking"]
    inner = TableModel(table)
    model = TranslatedModel(inner, words)
    first, second = model.extend([(0, [1], 1), (1, [0, 3], 2)])
    np.testing.assert_array_equal(first[0][words.targets], table([0, 1])[words.drafts])
    np.testing.assert_array_equal(second[1][words.targets], table([2, 1, 1])[words.drafts])
    model.truncate(0, 0)
    assert inner.cache == {0: [], 1: [2, 1, 1]}


def test_a_draft_whose_context_the_longer_spelling_fills_drafts_no_more() -> None:
    words, table = CASES["two lacking"]
    across = ChainDrafter(TranslatedModel(Narrow(table), words), Proposal.COUPLED)
    processor = LogitsProcessor(tables.WARM, V)
    lengths = []
    for n in range(1, 8):
        (draft,) = across.propose([Ask(0, [1] * n, Budget.chain(4), Noise(0), processor)])
        lengths.append(len(draft))
    assert lengths == [4, 4, 4, 2, 0, 0, 0]
