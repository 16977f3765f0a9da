"""Models that hear: sounds in prompts, drafted like everything else."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from picture_files import Seeing, png, write_seeing
from shared_encoders import SharedModels, shared_models
from sound_files import FAMILIES, wav, write_hearing

from localspec import Message, Options, ReplyRequest, Runtime, Sampling
from localspec.core.errors import MediaError
from localspec.core.picture import Picture
from localspec.llama import projector
from localspec.media import decoding
from localspec.models.catalog.projectors import senses
from localspec.models.gguf.header import read_opening

pytestmark = pytest.mark.usefixtures("mtmd")

ONE, OTHER = wav(1.0, 440), wav(1.5, 330)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedModels]:
    """See `shared_encoders` for why they can be shared."""
    with shared_models(tmp_path_factory.mktemp("models"), write_hearing) as made:
        yield made


@pytest.fixture(params=FAMILIES)
def hearing(
    request: pytest.FixtureRequest, models: SharedModels, monkeypatch: pytest.MonkeyPatch
) -> Seeing:
    monkeypatch.setattr(projector, "EncoderProcess", models.process)
    return models.of(request.param)


def opened(hearing: Seeing, **changes: object) -> Runtime:
    asked = Options(model=str(hearing.model), draft="none", threads=1, context=4096, remember=False)
    return Runtime.open(dataclasses.replace(asked, **changes))  # type: ignore[arg-type]


def said(text: str, *sounds: bytes) -> Message:
    return Message("user", text, pictures=tuple(Picture(data, at=len(text)) for data in sounds))


def asked(*messages: Message, draft: bool = True, temperature: float = 0.0) -> ReplyRequest:
    sampling = Sampling(temperature=temperature)
    return ReplyRequest(
        messages=messages, sampling=sampling, seed=3, max_tokens=24, draft=draft, draft_max=4
    )


def test_drafted_replies_to_sounds_are_the_plain_ones(hearing: Seeing) -> None:
    two = (said("Compare these.", ONE, OTHER), Message("assistant", "No."), said("Why?"))
    with opened(hearing, drafter=("ngram",)) as runtime:
        assert runtime.info.hears
        assert not runtime.info.sees
        for messages in ((said("What is this?", ONE),), two):
            for temperature in (0.0, 1.0):
                plain = runtime.answer(asked(*messages, draft=False, temperature=temperature))
                runtime.forget()
                drafted = runtime.answer(asked(*messages, temperature=temperature))
                assert drafted.tokens == plain.tokens


def test_another_sound_gives_other_rows_and_the_same_one_is_cached(hearing: Seeing) -> None:
    with opened(hearing) as runtime:
        first = runtime.answer(asked(said("What is this?", ONE)))
        again = runtime.answer(asked(said("What is this?", ONE)))
        other = runtime.answer(asked(said("What is this?", OTHER)))
    assert again.tokens == first.tokens
    assert again.stats.cached_tokens == first.stats.prompt_tokens - 1
    assert other.stats.cached_tokens < first.stats.prompt_tokens - 10


def test_a_long_sound_has_several_pieces(hearing: Seeing) -> None:
    with opened(hearing, context=16384) as runtime:
        short = runtime.answer(asked(said("What is this?", wav(2.0, rate=8000))))
        long = runtime.answer(asked(said("What is this?", wav(65.0, rate=8000))))
        assert long.stats.prompt_tokens > 2 * short.stats.prompt_tokens
        runtime.forget()
        again = runtime.answer(asked(said("What is this?", wav(65.0, rate=8000)), draft=False))
    assert again.tokens == long.tokens


def test_senses_are_read_from_the_projector(hearing: Seeing, tmp_path: Path) -> None:
    found = senses(read_opening(hearing.projector))
    assert (found.sees, found.hears) == (False, True)
    seeing = write_seeing(tmp_path / "seeing", "llava")
    found = senses(read_opening(seeing.projector))
    assert (found.sees, found.hears) == (True, False)


def test_what_a_model_cannot_perceive_is_a_sentence_and_ends_one_reply(
    hearing: Seeing, tmp_path: Path
) -> None:
    with opened(hearing) as runtime:
        with pytest.raises(MediaError, match="hears sounds, and cannot see pictures"):
            runtime.answer(asked(said("What is this?", png())))
        assert runtime.answer(asked(said("Hello"))).tokens
    with opened(write_seeing(tmp_path / "seeing", "llava"), context=1024) as runtime:
        with pytest.raises(MediaError, match="is a sound, which this model does not hear"):
            runtime.answer(asked(said("What is this?", ONE)))
        assert runtime.answer(asked(said("Hello"))).tokens


def test_sounds_become_one_channel_at_the_rate_of_the_model() -> None:
    found = decoding.decoded(wav(1.0, rate=44_100), "a.wav", rate=16_000)
    samples = np.frombuffer(found.data, np.float32)  # type: ignore[union-attr]
    assert abs(len(samples) - 16_000) < 50
    assert 0.3 < samples.max() < 0.45


def floats(*values: float) -> bytes:
    """A WAV file of float32."""
    data = np.array(values * 400, "<f4").tobytes()
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 3, 1, 16_000, 64_000, 4, 32)
    body = b"WAVE" + form + struct.pack("<4sI", b"data", len(data)) + data
    return struct.pack("<4sI", b"RIFF", len(body)) + body


HOSTILE = (
    (b"RIFF\xff\xff\xff\xffWAVE" + bytes(99), "is damaged or of no known kind"),
    (b"ID3" + bytes(200), "is damaged or of no known kind"),
    (b"fLaC" + b"\xff" * 300, "is damaged or of no known kind"),
    (ONE[:44], "has no samples"),
    (wav(1300, rate=1000, channels=1), "lasts longer than 20 minutes"),
    (floats(float("nan")), "samples that are not numbers"),
    (floats(float("inf"), 0.0), "samples that are not numbers"),
)
"""Sounds, and why they are refused."""


def test_hostile_sounds_are_refused(tmp_path: Path) -> None:
    with opened(write_hearing(tmp_path / "model", "ultravox")) as runtime:
        for data, why in HOSTILE:
            with pytest.raises(MediaError, match=why):
                runtime.answer(asked(said("What is this?", data)))
            assert runtime.answer(asked(said("Hello"))).tokens


@pytest.mark.parametrize("n", [100, 1001, len(ONE) - 1])
def test_a_sound_that_was_cut_is_heard_as_far_as_it_goes(n: int) -> None:
    found = decoding.decoded(ONE[:n], "a.wav", rate=16_000)
    assert 0 < len(found.data) // 4 < 16_100  # type: ignore[union-attr]


@pytest.mark.parametrize("begins", [b"ID3\x04", b"\xff\xfb\x90\x64", b"fLaC\0\0\0\x22", b"OggS\0"])
def test_random_bytes_behind_a_known_beginning_are_refused_or_heard(begins: bytes) -> None:
    rng = np.random.default_rng(begins[0])
    for size in (10, 100, 1000, 100_000):
        try:
            found = decoding.decoded(begins + rng.bytes(size), "a", rate=16_000)
        except MediaError:
            continue
        assert len(found.data) % 4 == 0  # type: ignore[union-attr]
