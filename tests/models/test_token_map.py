"""The tokens that two vocabularies share, and how a text of one is spelled in the other."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from localspec.models.compat.token_map import ENOUGH, meaning, translate, why_incompatible

SPM, BPE = 1, 2


@dataclass(frozen=True)
class Words:
    """A `Vocabulary` from a list."""

    texts: list[str]
    vocab_type: int = BPE
    special_ids: dict[str, int] = field(default_factory=lambda: {"bos": -1, "eos": -1, "eot": -1})
    adds_bos: bool = False

    @property
    def n_vocab(self) -> int:
        return len(self.texts)

    def token_text(self, token: int) -> bytes:
        return self.texts[token].encode()


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (BPE, "Ġhello", b" hello"),
        (SPM, "▁hello", b" hello"),
        (BPE, "Ċ", b"\n"),
        (SPM, "<0x0A>", b"\n"),
        (SPM, "<0xZZ>", b"<0xZZ>"),
        (BPE, "Ã¼", "ü".encode()),
        (SPM, "ü", "ü".encode()),
        (BPE, "<|im_end|>", b"<|im_end|>"),
        (BPE, "▁of another kind", "▁of another kind".encode()),
    ],
)
def test_a_token_means_its_bytes_whatever_its_spelling(
    kind: int, text: str, expected: bytes
) -> None:
    assert meaning(kind, text.encode()) == expected


def test_tokens_of_different_tokenizers_meet_where_they_mean_the_same() -> None:
    target = Words(["Ġa", "b", "Ġcd", "<|end|>"])
    draft = Words(["<0x62>", "▁a", "b", "▁c", "d"], SPM)
    both = translate(target, draft)
    assert both.targets.tolist() == [0, 1]
    assert both.drafts.tolist() == [1, 2]  # the letter, not the byte
    assert both.shared == 2 / 4


def test_what_the_draft_lacks_is_spelled_with_the_longest_tokens_it_has() -> None:
    both = translate(Words(["abcd", "x", "é"]), Words(["a", "b", "ab", "cd", "Ã"]))
    assert both.read(0) == (2, 3)
    assert both.read(1) == (0,)  # nothing at all: never an empty reading
    assert both.read(2) == (0,)


def test_ends_of_text_are_the_same_under_any_name() -> None:
    ids = {"bos": -1, "eos": 1, "eot": -1}
    both = translate(Words(["a", "<end>"], special_ids=ids), Words(["a", "</s>"], special_ids=ids))
    assert both.targets.tolist() == [0, 1]
    assert both.drafts.tolist() == [0, 1]
    assert both.read(1) == (1,)
    assert both.shared == 0.5  # a common name would have counted


def test_a_draft_that_starts_with_bos_starts_with_bos() -> None:
    ids = {"bos": 1, "eos": -1, "eot": -1}
    with_bos = Words(["a", "<s>"], special_ids=ids, adds_bos=True)
    assert translate(Words(["a"]), with_bos).start == (1,)
    assert translate(with_bos, with_bos).start == ()


def test_nine_tenths_must_be_shared() -> None:
    words = [f"w{i}" for i in range(100)]
    enough = [*(f"v{i}" for i in range(10)), *words[10:]]
    too_few = [*(f"v{i}" for i in range(11)), *words[11:]]
    assert ENOUGH == 0.9
    assert why_incompatible(Words(words), Words(words)) is None
    assert why_incompatible(Words(words), Words(enough)) is None
    reason = why_incompatible(Words(words), Words(too_few)) or ""
    assert "differ from id 0" in reason
    assert "89% of their tokens in common" in reason


def test_a_smaller_vocabulary_counts_by_itself() -> None:
    words = [f"w{i}" for i in range(1000)]
    assert why_incompatible(Words(words), Words(words[500:])) is None
