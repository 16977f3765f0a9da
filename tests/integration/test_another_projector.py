"""A chat that was saved with one projector goes on with another, as if nothing had been saved."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import sound_files
from picture_files import Seeing, drawn, png, write_projector, write_seeing

from localspec import Message, Options, ReplyRequest, Runtime, Sampling
from localspec.core.errors import ModelFileError
from localspec.core.events import Reply
from localspec.core.picture import Picture
from localspec.llama.projector import Projector
from localspec.prefix_cache import cache, search

TEXT = "The house stands by the river and the boats go by. " * 8
LETTERS = tuple((token, -100.0) for token in range(256) if not 97 <= token <= 122)
"""A reply that is split into the same tokens again by nobody but who remembers them."""
SHOWN = {
    "pictures": (png(), png(drawn(7, 64, 120)), png()),
    "a sound": (sound_files.wav(1.0, 440),),
}

pytestmark = pytest.mark.usefixtures("mtmd")


@pytest.fixture(autouse=True)
def _always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(search.Moving, "seconds", lambda *_: 0.0)


def written(folder: Path, kind: str) -> tuple[Seeing, Path]:
    """A model with its projector, and another projector."""
    if kind == "a sound":
        hearing = sound_files.write_hearing(folder / "model", "ultravox")
        return hearing, sound_files.write_hearing(folder / "other", "ultravox", seed=9).projector
    seeing = write_seeing(folder / "model", "llava", context=2048)
    return seeing, write_projector(folder / "other.gguf", "llava", seed=99)


@pytest.mark.parametrize("kind", SHOWN)
def test_a_saved_chat_goes_on_with_the_rows_of_the_projector_that_is_loaded(
    tmp_path: Path, kind: str
) -> None:
    seeing, other = written(tmp_path, kind)
    shown = tuple(Picture(data=data, at=len(TEXT)) for data in SHOWN[kind])
    first = (Message("user", TEXT + "What is this?", pictures=shown),)
    greedy = Sampling(temperature=0.0)

    def answers(projector: Path, *turns: tuple[Message, ...], save: bool = True) -> list[Reply]:
        options = Options(str(seeing.model), mmproj=str(projector), draft="none", remember=False)
        with Runtime.open(options) as runtime:
            if save:
                runtime.keep_states()
            found = []
            for turn in turns:
                letters = LETTERS if turn is first else ()
                sampling = Sampling(temperature=0.0, logit_bias=letters) if letters else greedy
                request = ReplyRequest(turn, sampling=sampling, seed=5, max_tokens=12)
                found.append(runtime.answer(request))
                if turn is first:  # so only its state is there
                    runtime.rest()
            return found

    (said,) = answers(seeing.projector, first)
    later = (*first, Message("assistant", said.text), Message("user", "And now?"))
    (resumed,) = answers(seeing.projector, later)
    assert resumed.stats.cached_tokens > said.stats.prompt_tokens - 10
    (alone,) = answers(other, later, save=False)
    found, again = answers(other, later, later)
    assert found.tokens == again.tokens == alone.tokens != resumed.tokens
    assert 0 < found.stats.cached_tokens <= len(TEXT) + 20
    seeing.projector.write_bytes(other.read_bytes())  # the file is replaced
    (replaced,) = answers(seeing.projector, later)
    assert replaced.tokens == alone.tokens


def test_an_encoder_that_is_started_again_refuses_a_projector_that_was_replaced(
    tmp_path: Path,
) -> None:
    """Or its rows would be taken for those of the one that was loaded."""
    seeing, other = written(tmp_path, "pictures")
    options = Options(str(seeing.model), mmproj=str(seeing.projector), draft="none", remember=False)
    asked = ReplyRequest(
        (Message("user", "What?", pictures=(Picture(data=png(), at=0),)),), max_tokens=2
    )
    another = (Picture(data=png(drawn(7, 64, 120)), at=0),)
    with Runtime.open(options) as runtime:
        runtime.answer(asked)  # loads it
        (projector,) = (part for part in runtime.pair.parts.loaded if isinstance(part, Projector))
        process = projector._process._process
        assert process is not None
        process.kill()
        process.wait()
        other.replace(seeing.projector)
        with pytest.raises(ModelFileError, match="changed while it was loaded"):
            runtime.answer(
                dataclasses.replace(asked, messages=(Message("user", "And?", pictures=another),))
            )
