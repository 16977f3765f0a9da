"""Drafts of another vocabulary: matched by text, exact all the same, refused below 90 %."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gguf_tools
import numpy as np
import pytest
from conftest import Files

from localspec import Message, Options, Runtime, Sampling
from localspec.drafters import Ask, Committed
from localspec.drafters.model import ModelDrafter
from localspec.drafters.translated import TranslatedModel
from localspec.errors import ContextFullError
from localspec.events import Finished, Reply
from localspec.noise import Noise
from localspec.pairs.translation import translate
from localspec.sampling import Processor
from localspec.testing import TableModel
from localspec.values import Budget, Proposal


class Words:
    """A vocabulary of words; spells what it does not know letter by letter."""

    def __init__(self, words: Sequence[str], eos: int) -> None:
        self.words = list(words)
        self.special_ids = {"bos": -1, "eos": eos, "eot": -1}

    @property
    def n_vocab(self) -> int:
        return len(self.words)

    def piece(self, token: int) -> bytes:
        return b"" if token == self.special_ids["eos"] else self.words[token].encode()

    def token_text(self, token: int) -> bytes:
        return self.words[token].encode()

    def tokenize(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        return [self.words.index(letter) for letter in text if letter in self.words]


TARGET = Words(["a", "b", "ab", "<end>", "c"], eos=3)
DRAFT = Words(["<stop>", "c", "b", "a", "zz"], eos=0)


def test_ids_are_matched_by_text_and_ends_by_role() -> None:
    found = translate(TARGET, DRAFT)
    assert found.to_draft.tolist() == [3, 2, -1, 0, 1]
    assert found.to_target.tolist() == [3, 4, 1, 0, -1]
    assert found.shared == 4 / 4
    assert found.read(0) == [3]
    assert found.read(2) == [3, 2]  # "ab" is read as a, b


def test_the_same_vocabulary_is_translated_to_itself() -> None:
    found = translate(TARGET, TARGET)
    assert found.to_draft.tolist() == found.to_target.tolist() == [0, 1, 2, 3, 4]


def last_token(tokens: Sequence[int]) -> np.ndarray:
    """Logits that tell what was read last and how much."""
    row = np.zeros(5, np.float32)
    if tokens:
        row[tokens[-1]] = len(tokens)
    return row


def test_rows_speak_the_targets_ids_and_lengths_count_the_targets_tokens() -> None:
    inner = TableModel(last_token)
    model = TranslatedModel(inner, translate(TARGET, DRAFT))
    (rows,) = model.extend([(0, [0, 2, 4], 2)])  # a, ab, c
    assert inner.cache[0] == [3, 3, 2, 1]
    assert rows.shape == (2, 5)
    assert rows[0].tolist() == [0, 3, -np.inf, 0, 0]  # after "ab": b was read last, three in all
    assert rows[1].tolist() == [0, 0, -np.inf, 0, 4]
    model.truncate(0, 2)
    assert inner.cache[0] == [3, 3, 2]
    (rows,) = model.extend([(0, [1], 1)])
    assert inner.cache[0] == [3, 3, 2, 2]
    model.truncate(0, 0)
    assert inner.cache[0] == []


def test_several_sequences_keep_their_own_books() -> None:
    inner = TableModel(last_token)
    model = TranslatedModel(inner, translate(TARGET, DRAFT))
    first, second = model.extend([(0, [2], 1), (1, [0, 1], 2)])
    assert first[0].tolist() == [0, 2, -np.inf, 0, 0]
    assert second[1].tolist() == [0, 2, -np.inf, 0, 0]
    model.truncate(0, 0)
    assert inner.cache == {0: [], 1: [3, 2]}


def permuted(folder: Path, lost: int = 0, **settings: int) -> Path:
    """A draft with its vocabulary in another order, ``lost`` words unknown to the target."""
    words = gguf_tools.byte_vocabulary()
    order = [0, 1, 2, *reversed(range(3, len(words)))]
    foreign = [words[i] for i in order]
    for i in range(lost):
        foreign[100 + i] = f"unknown{i}"
    return gguf_tools.write_llama(folder / f"foreign{lost}.gguf", vocabulary=foreign, **settings)


def replies(options: Options, temperature: float) -> list[Reply]:
    found = []
    with Runtime.open(options) as runtime:
        for prompt in ("abc abc abc", "Grüße, 世界! 1 2 3"):
            *_, last = runtime.reply(
                [Message("user", prompt)],
                sampling=Sampling(temperature=temperature),
                seed=3,
                max_tokens=40,
            )
            assert isinstance(last, Finished)
            found.append(last.reply)
    return found


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("lost", [0, 5])
def test_a_foreign_draft_leaves_the_text_alone(
    files: Files, tmp_path: Path, temperature: float, lost: int
) -> None:
    foreign = permuted(tmp_path, lost)
    plain = replies(Options(model=str(files.target), drafter=("off",)), temperature)
    options = Options(model=str(files.target), draft=str(foreign), drafter=("model",), draft_max=4)
    drafted = replies(options, temperature)
    assert [r.tokens for r in drafted] == [r.tokens for r in plain]
    assert all(r.stats.by_drafter["model"].verified > 0 for r in drafted)


def test_a_foreign_draft_runs_under_rejection_and_says_what_it_is(
    files: Files, tmp_path: Path
) -> None:
    options = Options(
        model=str(files.target),
        draft=str(permuted(tmp_path)),
        drafter=("model",),
        draft_max=4,
        verifier="rejection",
    )
    with Runtime.open(options) as runtime:
        assert any("another vocabulary" in notice for notice in runtime.info.notices)
    assert all(r.stats.verified > 0 for r in replies(options, 1.0))


def test_too_foreign_a_draft_is_refused_with_the_share(files: Files, tmp_path: Path) -> None:
    options = Options(model=str(files.target), draft=str(permuted(tmp_path, 60)))
    with Runtime.open(options) as runtime:
        (notice,) = [n for n in runtime.info.notices if "cannot draft" in n]
    assert "only 77% of the tokens are shared" in notice


class Narrow(TableModel):
    """Has room for a few tokens only."""

    def extend(self, work: Sequence[tuple[int, Sequence[int], int]]) -> list[np.ndarray]:
        if any(len(self.cache.get(seq, [])) + len(tokens) > 6 for seq, tokens, _ in work):
            raise ContextFullError("full")
        return super().extend(work)


def test_what_is_too_long_in_the_drafts_words_is_not_drafted_for() -> None:
    """One token of the target may be several of the draft's, whose context then ends first."""
    model = TranslatedModel(Narrow(last_token), translate(TARGET, DRAFT))
    drafter = ModelDrafter(model, Proposal.COUPLED)
    tokens = [0, 1, 0]
    drafter.commit([Committed(0, tokens, tokens, {})])
    budget = Budget.chain(8)
    processor = Processor(Sampling(temperature=0), 5)
    (draft,) = drafter.propose([Ask(0, tokens, budget, Noise(0), processor)])
    assert 0 < len(draft) < 8
    long = [2, 2, 2, 2]
    drafter.commit([Committed(0, long, long, {})])
    (draft,) = drafter.propose([Ask(0, long, budget, Noise(0), processor)])
    assert len(draft) == 0
