"""Drafts of another vocabulary on llama.cpp: the text of plain decoding, whatever they lack."""

from __future__ import annotations

import random
from pathlib import Path

import gguf_tools
import pytest
from conftest import Files
from replies import last

from localspec import GREEDY, Message, Options, Runtime, Sampling
from localspec.core.errors import DraftIncompatibleError

WARM = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
SETTINGS = [GREEDY, WARM, Sampling(repeat_penalty=1.3)]
TEXT = [Message("user", "Grüße 🙂, hello there, hello\r\n")]
N = len(gguf_tools.byte_vocabulary())


def shuffled() -> list[int]:
    order = [*range(N)]
    random.Random(1).shuffle(order)
    return order


ROWS = {
    "another order": shuffled(),
    "a tenth less": [i for i in shuffled() if i < 3 or i % 10],
    "the first of them": [i for i in range(N) if i < 120],
    "no marker of a turn": [i for i in range(N) if i != 1],
}


def draft_of(files: Files, rows: list[int], layers: int = 2) -> str:
    path = files.folder / f"{layers} {hash(tuple(rows))}.gguf"
    if not path.exists():
        gguf_tools.write_llama(path, layers=layers, seed=3, rows=rows)
    return str(path)


def opened(files: Files, draft: str, **settings: object) -> Runtime:
    chosen = {"drafter": ("model",), "draft_max": 3, "threads": 1} | settings
    return Runtime.open(Options(model=str(files.target), draft=draft, **chosen))


@pytest.mark.parametrize("rows", ROWS)
def test_the_text_is_that_of_plain_decoding_in_every_turn(files: Files, rows: str) -> None:
    with opened(files, draft_of(files, ROWS[rows])) as runtime:
        assert "another vocabulary" in runtime.info.notices[0]
        assert runtime.info.draft is not None
        drafted = 0
        for seed, sampling in enumerate(SETTINGS):
            turns = list(TEXT)
            for _ in range(2):
                settings = {"sampling": sampling, "seed": seed, "max_tokens": 30}
                plain = last(runtime.reply(turns, draft=False, **settings))
                reply = last(runtime.reply(turns, **settings))
                assert reply.tokens == plain.tokens
                drafted += reply.stats.drafted
                turns += [Message("assistant", reply.text), Message("user", "And now?")]
        assert drafted > 0


def test_the_target_with_its_tokens_in_another_order_drafts_perfectly_for_itself(
    files: Files,
) -> None:
    with opened(files, draft_of(files, ROWS["another order"])) as runtime:
        reply = last(runtime.reply(TEXT, sampling=GREEDY, max_tokens=60))
        assert reply.stats.accepted == reply.stats.verified > 20


def test_rejection_draws_from_what_is_shared(files: Files) -> None:
    draft = draft_of(files, ROWS["a tenth less"])
    with opened(files, draft, verifier="rejection") as runtime:
        reply = last(runtime.reply(TEXT, sampling=WARM, seed=2, max_tokens=80))
        assert reply.stats.accepted > 0
        assert any(token % 10 == 0 for token in reply.tokens)  # of the target alone


def test_the_end_of_the_draft_models_context_ends_its_drafts_and_not_the_reply(
    files: Files,
) -> None:
    """Markers that the draft lacks take many tokens of its own: it is full before the target."""
    draft = draft_of(files, ROWS["no marker of a turn"])
    turns = [Message("user", "ab"), Message("assistant", "cd")] * 8 + [Message("user", "ef")]
    with opened(files, draft, context=256) as runtime:
        reply = last(runtime.reply(turns, sampling=GREEDY))
        plain = last(runtime.reply(turns, sampling=GREEDY, draft=False))
        assert reply.tokens == plain.tokens
        assert reply.finish_reason == plain.finish_reason


def test_a_vocabulary_with_too_little_in_common_is_refused_with_the_share(
    files: Files, tmp_path: Path
) -> None:
    words = gguf_tools.foreign_vocabulary(100)
    foreign = str(gguf_tools.write_llama(tmp_path / "foreign.gguf", vocabulary=words))
    with opened(files, foreign) as runtime:
        assert "62% of their tokens in common" in runtime.info.notices[0]
        assert runtime.info.draft is None
    with pytest.raises(DraftIncompatibleError, match="62% of their tokens"):
        opened(files, foreign, require_draft=True)
