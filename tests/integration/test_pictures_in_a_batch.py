"""A picture is encoded and read in slices while others wait, and the result is the same. The
process that encodes it is stopped while others compute, and may be killed.
"""

from __future__ import annotations

import gc
import json
import os
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from gguf_tools import SPECIALS
from numpy.typing import NDArray
from picture_files import FAMILIES, KINDS, Seeing, drawn, png, write_seeing
from shared_encoders import SharedModels, shared_models
from waiting import until

from localspec import Message, Options, ReplyRequest, Runtime, Sampling
from localspec.core import media_rows
from localspec.core.errors import DecodeError, Interrupted, QueueFullError
from localspec.core.events import Finished, Reading, Reply, Token
from localspec.core.interrupt import Interrupt
from localspec.core.picture import Picture, Pixels
from localspec.core.target import Work
from localspec.core.values import no_draft
from localspec.generation import prefill, replies
from localspec.llama import encoder_child, projector
from localspec.llama.encoder_process import Job
from localspec.llama.projector import Projector
from localspec.llama.target import LlamaTarget

pytestmark = pytest.mark.usefixtures("mtmd")
ONE, OTHER = png(), png(drawn(7, 64, 120))
LARGE = png(drawn(1, 800, 800))
"""A picture whose encoding takes longer than this process is ever kept from computing."""
ROWS = 16


@pytest.fixture(autouse=True)
def _least_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projector, "_LEAST_S", 0.0005)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedModels]:
    """See `shared_encoders` for why they can be shared."""
    with shared_models(tmp_path_factory.mktemp("models"), write_seeing) as made:
        yield made


@pytest.fixture(params=FAMILIES)
def seeing(
    request: pytest.FixtureRequest, models: SharedModels, monkeypatch: pytest.MonkeyPatch
) -> Seeing:
    monkeypatch.setattr(projector, "EncoderProcess", models.process)
    return models.of(request.param)


each_kind = pytest.mark.parametrize("seeing", KINDS, indirect=True)
"""For what does not depend on the encoder."""


def opened(seeing: Seeing, **options: object) -> Runtime:
    chosen = {"draft": "none", "remember": False, "parallel": 3, **options}
    return Runtime.open(Options(model=str(seeing.model), **chosen))  # type: ignore[arg-type]


def shown(text: str, *pictures: bytes) -> Message:
    return Message("user", text, pictures=tuple(Picture(data=data, at=0) for data in pictures))


ENDLESS = Sampling(temperature=1.5, logit_bias=tuple((i, -100.0) for i in range(len(SPECIALS))))


def asked(*messages: Message, tokens: int = 24) -> ReplyRequest:
    return ReplyRequest(messages, sampling=ENDLESS, seed=5, max_tokens=tokens)


def row(target: LlamaTarget, seq: int, token: int) -> NDArray[np.float32]:
    (scores,) = target.score([Work(seq, token, no_draft("test"))])
    found: NDArray[np.float32] = scores.logits[0].copy()
    target.keep(seq, ())
    return found


def in_slices(target: LlamaTarget, seq: int, tokens: list[int]) -> Iterator[int]:
    """The tokens so far, after each slice as short as can be."""
    at = 0
    while at < len(tokens):
        at += target.read_within(seq, tokens[at:], 0.0, ROWS)
        yield at


def test_others_compute_between_the_slices_of_a_picture(seeing: Seeing) -> None:
    with opened(seeing, kv_type="f32") as runtime:
        tokens = runtime.encode((shown("What is this?", ONE, OTHER),))
        target, beside = runtime.pair.target, runtime.encode((Message("user", "Hello"),))
        target.read(2, beside)
        together: list[NDArray[np.float32]] = []
        slices = 0
        for at in in_slices(target, 1, tokens[:-1]):
            slices += 1
            assert target.length(1) == at
            target.audit(1)
            if slices % 4 == 0:
                together.append(row(target, 2, 65))
        assert slices > 5  # of the encoder, and of rows
        assert target.length(1) == len(tokens) - 1
        found = row(target, 1, tokens[-1])
        target.truncate(2, len(beside))
        alone = [row(target, 2, 65) for _ in together]
        target.read(0, tokens[:-1])
        assert np.abs(row(target, 0, tokens[-1]) - found).max() < 2e-3
        assert np.abs(np.array(together) - np.array(alone)).max() < 2e-3


@each_kind
def test_a_picture_begun_and_given_up_leaves_nothing(seeing: Seeing) -> None:
    with opened(seeing, kv_type="f32") as runtime:
        tokens = runtime.encode((shown("What is this?", ONE),))
        target = runtime.pair.target
        begins = next(i for i, token in enumerate(tokens) if media_rows.is_row(token))
        target.read(1, tokens[:-1])
        straight = row(target, 1, tokens[-1])
        target.read(0, tokens[:begins])
        for _ in range(100_000):
            if target.read_within(0, tokens[begins:-1], 0.0, ROWS) or target.context.unfinished:
                break
        if seeing.model.stem != "gemma3":  # whose rows need all of each other
            assert target.context.unfinished == {0}
        state = bytearray(target.state(0))
        assert target.context.unfinished == set()
        target.restore(2, state)
        for seq in (0, 2):
            kept = target.length(seq)
            target.audit(seq)
            target.read(seq, tokens[kept:-1])
            target.audit(seq)
            assert np.abs(row(target, seq, tokens[-1]) - straight).max() < 2e-3


@pytest.mark.parametrize("seeing", ["llava", "qwen3vl"], indirect=True)  # several passes
def test_another_request_leaves_a_picture_that_is_begun(seeing: Seeing) -> None:
    with opened(seeing) as runtime:
        target, cache = runtime.pair.target, runtime._scheduler.prefix_cache
        tokens = runtime.encode((shown("What is this?", ONE),))
        begins = next(i for i, token in enumerate(tokens) if media_rows.is_row(token))
        cache.restore(0, [], tokens, "")
        target.read(0, tokens[:begins])
        cache.has_read(0, tokens[:begins], 0.1)
        while not target.picture_begun(0):
            assert target.read_within(0, tokens[begins:-1], 0.0, ROWS) == 0
        cache.restore(1, [], tokens, "")  # it begins with the same words
        assert target.picture_begun(0)


@pytest.mark.slow
@each_kind
def test_what_was_encoded_is_not_held(seeing: Seeing) -> None:
    with opened(seeing) as runtime:
        target = runtime.pair.target
        tokens = runtime.encode((shown("What is this?", ONE),))
        begins = next(i for i, token in enumerate(tokens) if media_rows.is_row(token))
        piece = target.pictures.projector.piece(
            [token for token in tokens if media_rows.is_row(token)]
        )
        source = weakref.ref(piece.source)
        target.read(0, tokens[:begins])
        while piece.source is not None:
            target.read_within(0, tokens[begins:-1], 0.0, ROWS)
        gc.collect()
        assert source() is None


def test_a_fork_that_fails_ends_its_own_reply_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, begins = os.pipe()

    def fails() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fails)
    encoder_child._fork(None, {"first": 0}, b"", begins, answers)  # type: ignore[arg-type]
    found = json.loads(os.read(answers, 1 << 16))
    assert "temporarily unavailable" in str(found)


@each_kind
def test_one_picture_waits_for_another_one(seeing: Seeing) -> None:
    """There is one encoder."""
    with opened(seeing) as runtime:
        prompts = [runtime.encode((shown("What?", data),))[:-1] for data in (ONE, OTHER)]
        target = runtime.pair.target
        left = {seq: in_slices(target, seq, prompts[seq]) for seq in (0, 1)}
        while left:
            for seq in [*left]:
                if next(left[seq], None) is None:
                    del left[seq]
        for seq in (0, 1):
            assert target.length(seq) == len(prompts[seq])
            target.audit(seq)


@pytest.mark.parametrize("family", KINDS)
def test_a_model_is_closed_while_a_picture_is_encoded(family: str, tmp_path: Path) -> None:
    with opened(write_seeing(tmp_path / "model", family)) as runtime:
        tokens = runtime.encode((shown("What is this?", ONE),))
        begins = next(i for i, token in enumerate(tokens) if media_rows.is_row(token))
        target = runtime.pair.target
        target.read(0, tokens[:begins])
        assert target.read_within(0, tokens[begins:-1], 0.0, ROWS) == 0
        running = processes(target)
        assert running
    until(lambda: not any(psutil.pid_exists(one.pid) for one in running))


def processes(target: LlamaTarget) -> list[psutil.Process]:
    """The process that has its projector, and the forks of that."""
    encoder = target.pictures.projector
    assert encoder is not None
    assert encoder._process._process is not None
    first = psutil.Process(encoder._process._process.pid)
    return [first, *first.children()]


def stands_still(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return True


def begun(target: LlamaTarget, tokens: list[int]) -> Job:
    """The encoding of the picture of a prompt, begun in sequence 0."""
    encoder = target.pictures.projector
    assert encoder is not None
    begins = next(i for i, token in enumerate(tokens) if media_rows.is_row(token))
    target.read(0, tokens[:begins])
    while encoder._running is None or encoder._running[1]._pid is None:
        assert target.read_within(0, tokens[begins:-1], 0.0, ROWS) == 0
    return encoder._running[1]


def in_pieces(encoder: Projector, ids: list[int], seconds: float) -> NDArray[np.float32]:
    """The rows of a picture, encoded in slices of so many seconds."""
    piece = encoder.piece(ids)
    while not piece.encoded(time.perf_counter() + seconds):
        pass
    assert encoder._running is None  # nothing stands still and waits for ever
    return piece.embeddings()


@pytest.mark.slow
def test_the_rows_are_the_same_in_slices_bit_for_bit(seeing: Seeing) -> None:
    rows = []
    for seconds in (0.0, 60.0):
        with opened(seeing) as runtime:
            tokens = runtime.encode((shown("What is this?", ONE),))
            assert runtime.pair.target.pictures.projector is not None
            (ids,) = [tokens[start:end] for start, end, seen in media_rows.runs(tokens) if seen]
            rows.append(in_pieces(runtime.pair.target.pictures.projector, [*ids], seconds))
    assert np.array_equal(*rows)


def test_a_picture_is_prepared_while_the_encoding_of_another_one_stands_still(
    tmp_path: Path,
) -> None:
    with opened(write_seeing(tmp_path / "model", "qwen2vl", context=8192)) as runtime:
        job = begun(runtime.pair.target, runtime.encode((shown("What is this?", LARGE),)))
        assert sum(map(media_rows.is_row, runtime.encode((shown("What is this?", OTHER),))))
        assert job._pid is not None
        until(lambda: stands_still(job._pid))
        assert psutil.pid_exists(job._pid)


def test_a_picture_that_nobody_waits_for_any_more_is_given_up(tmp_path: Path) -> None:
    with opened(write_seeing(tmp_path / "model", "qwen2vl", context=8192)) as runtime:
        target = runtime.pair.target
        job = begun(target, runtime.encode((shown("What is this?", LARGE),)))
        pid = job._pid
        assert pid is not None
        target.stop_encoding(1)  # another sequence's
        assert psutil.pid_exists(pid)
        target.stop_encoding(0)
        until(lambda: not psutil.pid_exists(pid))
        assert target.pictures.projector is not None
        assert target.pictures.projector._running is None
        assert runtime.answer(asked(shown("What is this?", OTHER))).tokens


def test_a_picture_is_not_waited_for_once_its_request_has_ended(tmp_path: Path) -> None:
    with opened(write_seeing(tmp_path / "model", "llava")) as runtime:
        runtime.encode((shown("What is this?", ONE),))
        encoder = runtime.pair.target.pictures.projector
        assert encoder is not None
        black = Pixels(64, 64, bytes(3 * 64 * 64))
        with pytest.raises(Interrupted):
            encoder.tokenized(black, lambda: True)
        assert encoder.tokenized(black, lambda: False).tokens


@pytest.mark.parametrize("who", ["the fork", "the process"])
def test_an_encoder_that_is_killed_ends_its_reply_and_not_the_next(
    tmp_path: Path, who: str
) -> None:
    seeing = write_seeing(tmp_path / "model", "qwen2vl", context=8192)
    with opened(seeing) as runtime:
        tokens = runtime.encode((shown("What is this?", LARGE),))
        job = begun(runtime.pair.target, tokens)
        assert job._pid is not None
        first, *_ = processes(runtime.pair.target)
        (first if who == "the process" else psutil.Process(job._pid)).kill()
        with pytest.raises(DecodeError, match="the process that encodes pictures ended"):
            runtime.pair.target.read(0, tokens[runtime.pair.target.length(0) : -1])
        reply = runtime.answer(asked(shown("What is this?", ONE)))
        assert reply.tokens
        assert runtime.answer(asked(shown("What is this?", OTHER))).tokens


def finished(stream: Iterator[object]) -> Reply:
    *_, last = stream
    assert isinstance(last, Finished)
    return last.reply


@pytest.fixture
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "PAUSE", 0.0)
    monkeypatch.setattr(replies, "_ROUNDS", 0.0)


@pytest.mark.usefixtures("short_slices")
@each_kind
def test_a_reply_goes_on_while_a_picture_is_encoded(seeing: Seeing) -> None:
    with opened(seeing) as runtime:
        runtime.pair.sight.encoder(lambda _: None)
        request = asked(shown("Compare.", ONE, OTHER))
        stop, rounds = Interrupt(), 0
        events = iter(runtime.submit(asked(Message("user", "Talk"), tokens=900), stop))
        assert any(isinstance(event, Token) for event in events)
        target = runtime.pair.target
        read = target.read_within
        score, unread = target.score, [0]

        def counted(seq: int, tokens: list[int], seconds: float, rows: int) -> int:
            done = read(seq, tokens, seconds, rows)
            unread[0] = len(tokens) - done
            return done

        def counting(work: list[Work]) -> object:
            nonlocal rounds
            rounds += unread[0] > 0
            encoder = target.pictures.projector
            assert encoder is not None
            if encoder._running is not None and (pid := encoder._running[1]._pid) is not None:
                until(lambda: stands_still(pid))
            return score(work)

        target.read_within = counted  # type: ignore[method-assign,assignment]
        target.score = counting  # type: ignore[method-assign,assignment]
        reply = finished(runtime.submit(request))
        stop.set()
        finished(events)
        assert rounds > 3
        runtime.forget()
        assert reply.tokens == runtime.answer(request).tokens


@pytest.mark.usefixtures("short_slices")
@each_kind
def test_a_picture_that_is_given_up_ends_its_reply_alone(seeing: Seeing) -> None:
    with opened(seeing) as runtime:
        runtime.pair.sight.encoder(lambda _: None)
        request = asked(shown("What is this?", ONE))
        stop, leaves = Interrupt(), Interrupt()
        events = iter(runtime.submit(asked(Message("user", "Talk"), tokens=900), stop))
        assert any(isinstance(event, Token) for event in events)
        target = runtime.pair.target
        read = target.read_within

        def stopped(seq: int, tokens: list[int], seconds: float, rows: int) -> int:
            done = read(seq, tokens, seconds, rows)
            if done < len(tokens):
                leaves.set()
            return done

        target.read_within = stopped  # type: ignore[method-assign,assignment]
        given_up = finished(runtime.submit(asked(shown("What is this?", OTHER)), leaves))
        assert given_up.finish_reason == "interrupt"
        reply = finished(runtime.submit(request))
        stop.set()
        assert finished(events).finish_reason == "interrupt"
        runtime.forget()
        assert reply.tokens == runtime.answer(request).tokens


@pytest.fixture
def _stands_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "PAUSE", 0.001)
    monkeypatch.setattr(replies, "_ROUNDS", 0.0)
    monkeypatch.setattr(prefill, "_TOGETHER_S", 0.0)


@pytest.mark.usefixtures("_stands_back")
def test_a_pass_that_others_would_wait_for_too_long_waits_until_they_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(write_seeing(tmp_path / "model", "gemma3", context=8192)) as runtime:
        runtime.pair.sight.encoder(lambda _: None)
        stop, appended = Interrupt(), []
        other = iter(runtime.submit(asked(Message("user", "Talk"), tokens=6000), stop))
        assert any(isinstance(event, Token) for event in other)
        context = runtime.pair.target.context
        passes = context.picture_passes

        def passed(seq: int, *more: Any) -> Any:
            appended.append(stop.is_set())
            return passes(seq, *more)

        monkeypatch.setattr(context, "picture_passes", passed)
        waiting = iter(runtime.submit(asked(shown("What is this?", ONE))))
        told = (event for event in waiting if isinstance(event, Reading) and event.encoding)
        until(lambda: next(told) and runtime.pair.target.noncausal_rows(prompt(runtime)))
        for _ in range(5):
            next(told)
        assert appended == []
        stop.set()
        assert finished(waiting).tokens
        assert appended == [True]
        assert finished(other).finish_reason == "interrupt"


def prompt(runtime: Runtime) -> list[int]:
    return runtime.encode((shown("What is this?", ONE),))


@pytest.mark.usefixtures("_stands_back")
def test_it_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefill, "_PATIENCE_S", 0.0)
    with opened(write_seeing(tmp_path / "model", "gemma3", context=8192)) as runtime:
        stop = Interrupt()
        other = iter(runtime.submit(asked(Message("user", "Talk"), tokens=6000), stop))
        assert any(isinstance(event, Token) for event in other)
        with pytest.raises(QueueFullError, match="try again when they are done"):
            runtime.answer(asked(shown("What is this?", ONE)))
        stop.set()
        assert finished(other).finish_reason == "interrupt"
        assert runtime.answer(asked(shown("What is this?", ONE))).tokens


@pytest.mark.slow
@each_kind
def test_alone_too_a_picture_is_encoded_in_slices_that_are_told_of(
    seeing: Seeing, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(seeing) as runtime:
        runtime.pair.sight.encoder(lambda _: None)
        request = asked(shown("What is this?", ONE))
        reply = runtime.answer(request)
    monkeypatch.setattr(prefill, "_ENCODING_S", 0.0)
    with opened(seeing) as runtime:
        runtime.pair.sight.encoder(lambda _: None)
        events = list(runtime.submit(request))
        told = [event for event in events if isinstance(event, Reading)]
        # Where this process is kept from computing for long, the first slice is the last one.
        assert any(event.encoding for event in told)
        assert not told[-1].encoding
        assert events[-1].reply.tokens == reply.tokens  # type: ignore[union-attr]
