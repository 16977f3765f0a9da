"""`demo-sees`: it says what is in pictures that nobody trained on, drafted as plainly."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from localspec import Message, Options, ReplyRequest, Runtime
from localspec.core import media_rows
from localspec.core.files.paths import DEMO_DIR
from localspec.core.picture import Picture
from localspec.core.sampling_params import Sampling

DATA = Path(__file__).parents[1] / "data" / "eye"
GREEDY = Sampling(temperature=0)
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("mtmd")]


def held_out() -> list[tuple[Path, str, str]]:
    """Pictures that were never trained on, in the order in which they were drawn, with a question
    about each and the right answer.
    """
    entries = json.loads((DATA / "answers.json").read_text(encoding="utf-8"))
    return [(DATA / e["picture"], e["question"], e["answer"]) for e in entries]


def asked(picture: Path, question: str) -> ReplyRequest:
    said = Message("user", f"\n{question}", pictures=(Picture(path=str(picture)),))
    return ReplyRequest((said,), sampling=GREEDY, max_tokens=64)


def test_its_files_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in (DEMO_DIR / "sees").glob("*.gguf")}
    assert sizes.keys() == {"target.gguf", "draft.gguf", "mmproj.gguf"}
    assert sum(sizes.values()) < 6_000_000


def test_it_sees_what_is_in_held_out_pictures_and_drafted_text_is_plain_text() -> None:
    right = 0
    with Runtime.open(Options(model="demo-sees", draft_max=4, remember=False)) as runtime:
        for picture, question, answer in (all_of := held_out()):
            request = asked(picture, question)
            plain = runtime.answer(dataclasses.replace(request, draft=False))
            runtime.forget()
            drafted = runtime.answer(request)
            runtime.forget()
            assert drafted.tokens == plain.tokens
            assert drafted.stats.drafted
            right += plain.text == answer
    assert right >= 0.8 * len(all_of)


def test_a_second_question_about_a_picture_encodes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    picture, question, answer = held_out()[0]
    with Runtime.open(Options(model="demo-sees", remember=False)) as runtime:
        runtime.pair.sight.encoder(lambda _: None)
        projector = runtime.pair.target.pictures.projector
        assert projector is not None
        encode, encoded = projector.encode, list[object]()
        monkeypatch.setattr(
            projector, "encode", lambda piece, until: (encoded.append(piece), encode(piece, until))
        )
        first = asked(picture, question)
        said = runtime.answer(first)
        assert said.text == answer
        calls = len(encoded)
        assert calls
        later = (
            *first.messages,
            Message("assistant", said.text),
            Message("user", "How many shapes are there?"),
        )
        reply = runtime.answer(dataclasses.replace(first, messages=later))
        assert reply.stats.cached_tokens > sum(map(media_rows.is_row, runtime.encode(later))) > 0
        assert len(encoded) == calls
