"""The prefix cache with models: what is restored continues as if it had been read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import head_files
import memory_files
import numpy as np
import pytest
from conftest import Files

from localspec import Finished, Message, Options, Runtime, Sampling
from localspec.core.errors import DecodeError
from localspec.core.events import Notice, Reading, Reply, Token
from localspec.core.files import paths
from localspec.core.reply_request import ReplyRequest
from localspec.llama import state as llama_saved
from localspec.llama.context import Context
from localspec.llama.draft_model import LlamaDraftModel
from localspec.llama.model import Model
from localspec.models.gguf.shards import fingerprint
from localspec.prefix_cache import cache, search
from localspec.prefix_cache import files as kv_files
from localspec.prefix_cache.disk import DAMAGED
from localspec.prefix_cache.files import KvStore

LONG = [Message("user", "Once upon a time there was a fox. " * 8)]
GREEDY = Sampling(temperature=0.0)


@pytest.fixture
def _always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(search.Moving, "seconds", lambda *_: 0.0)


def options(files: Files, **changes: object) -> Options:
    return replace(Options(str(files.target), draft=str(files.draft), threads=1), **changes)


def ask(runtime: Runtime, messages: list[Message]) -> tuple[Finished, list[object]]:
    events = list(runtime.reply(messages, sampling=GREEDY, seed=1, max_tokens=12))
    assert isinstance(events[-1], Finished)
    return events[-1], events


def went_on(end: Finished) -> list[Message]:
    return [*LONG, Message("assistant", end.reply.text), Message("user", "And then?")]


@pytest.mark.usefixtures("_always_worth_it")
@pytest.mark.parametrize("changes", [{}, {"drafter": ("tree",)}, {"kv_type": "q8_0"}])
def test_a_resumed_chat_goes_on_as_if_it_had_never_ended(
    files: Files, changes: dict[str, object]
) -> None:
    with Runtime.open(options(files, **changes)) as runtime:
        runtime.keep_states()
        first, _ = ask(runtime, LONG)
        runtime.rest()
        expected, _ = ask(runtime, went_on(first))
    with Runtime.open(options(files, **changes)) as runtime:
        runtime.keep_states()
        found, events = ask(runtime, went_on(first))
        assert found.reply.tokens == expected.reply.tokens
        assert found.reply.stats.cached_tokens == expected.reply.stats.cached_tokens > 100
        assert any(isinstance(e, Reading) and e.cached > 100 for e in events)


@pytest.mark.usefixtures("_always_worth_it")
@pytest.mark.parametrize("digits", [b"105", b"904", b"-14", b'"x"'])
def test_a_chat_whose_saved_tokens_are_damaged_is_read_as_it_was_written(
    files: Files, digits: bytes
) -> None:
    letters = tuple((token, -100.0) for token in range(256) if not 97 <= token <= 122)
    plain = Sampling(temperature=0.0, logit_bias=letters)
    with Runtime.open(options(files)) as runtime:
        runtime.keep_states()
        reply = runtime.answer(ReplyRequest(tuple(LONG), sampling=plain, seed=1, max_tokens=12))
        runtime.rest()
        later = [*LONG, Message("assistant", reply.text), Message("user", "And then?")]
        expected = runtime.encode(later)
    (path,) = paths.states_dir().rglob("*.state")
    written = path.read_bytes()
    begin = written.index(b'"text_tokens": [')
    at = next(m.start() for m in re.finditer(rb"\b\d{3}\b", written) if m.start() > begin)
    path.write_bytes(written[:at] + digits + written[at + 3 :])
    with Runtime.open(options(files)) as runtime:
        runtime.keep_states()
        _, events = ask(runtime, later)
        assert runtime.encode(later) == expected
        assert DAMAGED in [event.text for event in events if isinstance(event, Notice)]
    assert path.exists() is False


@pytest.mark.usefixtures("_always_worth_it")
def test_where_layers_slide_another_end_of_a_resumed_chat_is_read_anew(tmp_path: Path) -> None:
    """A saved state lacks the tokens that sliding layers saw before the last ones."""
    model = head_files.write_gemma(tmp_path / "slides.gguf", window=16)
    with Runtime.open(Options(str(model))) as runtime:
        runtime.keep_states()
        first, _ = ask(runtime, LONG)
        runtime.rest()
        other = [*LONG, Message("assistant", first.reply.text[:3]), Message("user", "No.")]
        expected = [ask(runtime, said)[0].reply.tokens for said in (LONG, other)]
    for said, right in zip((LONG, other), expected, strict=True):
        with Runtime.open(Options(str(model))) as runtime:
            runtime.keep_states()
            assert ask(runtime, said)[0].reply.tokens == right
            assert ask(runtime, said)[0].reply.stats.cached_tokens > 100


def raw(prompt: list[int], n: int = 20) -> ReplyRequest:
    return ReplyRequest(prompt_tokens=tuple(prompt), sampling=GREEDY, max_tokens=n, seed=1)


@pytest.mark.slow
@pytest.mark.usefixtures("_always_worth_it")
@pytest.mark.parametrize("shorter", [2, 3, 10])
@pytest.mark.parametrize("kind", ["full", "sliding"])
def test_a_draft_model_whose_layers_slide_reads_anew_what_a_saved_state_lacks(
    tmp_path: Path, kind: str, shorter: int
) -> None:
    target = memory_files.KINDS[kind](tmp_path / "target.gguf")
    draft = head_files.write_gemma(tmp_path / "draft.gguf", window=16)
    rng = np.random.default_rng(1)
    one, other = (rng.integers(3, 250, 120).tolist() for _ in range(2))
    drafts = Options(
        str(target),
        draft=str(draft),
        drafter=("model",),
        draft_max=4,
        context=512,
        cache_memory=100,
    )
    with Runtime.open(drafts) as runtime:
        text = [*one, *runtime.answer(raw(one)).tokens]
        runtime.answer(raw(other))
        again = [*text[: -1 - shorter], 7, 7, 7]
        found = runtime.answer(raw(again))
        assert found.stats.cached_tokens > 60
        assert found.stats.drafted > 0
    with Runtime.open(replace(drafts, drafter=("off",))) as runtime:
        assert runtime.answer(raw(again)).tokens == found.tokens


@pytest.mark.usefixtures("_always_worth_it")
def test_a_copy_of_a_running_text_in_a_draft_model_whose_layers_slide_disturbs_nobody(
    tmp_path: Path,
) -> None:
    target = memory_files.KINDS["full"](tmp_path / "target.gguf")
    draft = head_files.write_gemma(tmp_path / "draft.gguf", window=16)
    prompt = np.random.default_rng(1).integers(3, 250, 120).tolist()
    begins = [*prompt[:70], 5, 6, 7]
    drafts = Options(
        str(target), draft=str(draft), drafter=("model",), draft_max=4, context=512, parallel=2
    )
    with Runtime.open(drafts) as runtime:
        running = runtime.submit(raw(prompt, 200))
        next(event for event in running if isinstance(event, Token))
        beside = runtime.answer(raw(begins))
        *_, last = running
        assert isinstance(last, Finished)
        assert len(last.reply.tokens) == 200
        assert beside.stats.drafted > 0
    with Runtime.open(replace(drafts, drafter=("off",))) as runtime:
        assert runtime.answer(raw(begins)).tokens == beside.tokens


def test_a_restored_sequence_is_not_cut_where_a_sliding_layer_would_miss_something(
    tmp_path: Path,
) -> None:
    loaded = Model(head_files.write_gemma(tmp_path / "slides.gguf", window=16))
    context, other = (Context(loaded, n_ctx=256, threads=1) for _ in range(2))
    try:
        tokens = np.random.default_rng(0).integers(3, 250, 100).tolist()
        context.read(0, tokens)
        llama_saved.restore(other, 0, bytearray(llama_saved.state(context, 0)))
        with pytest.raises(DecodeError, match="sliding"):
            other.truncate(0, 90)
        rows = []
        for made in (context, other):
            made.forward([(0, [5, 6, 7, 8], 1)])
            made.truncate(0, 101)  # a draft that did not stand
            rows.append(made.forward([(0, [9], 1)])[0].copy())
        np.testing.assert_allclose(rows[0], rows[1], atol=0.01)
        other.truncate(0, 0)
        other.read(0, tokens)
        other.truncate(0, 20)  # nothing is missing in what was read here
    finally:
        for made in (context, other, loaded):
            made.close()


def test_a_chat_beyond_a_chunk_goes_on_from_a_restored_state(tmp_path: Path) -> None:
    """Chunked attention keeps the current chunk alone, and that is all that the next token sees."""
    loaded = Model(memory_files.write_llama4(tmp_path / "chunks.gguf", context=9000))
    context, other = (Context(loaded, n_ctx=9000, threads=1) for _ in range(2))
    try:
        tokens = np.random.default_rng(0).integers(3, 250, memory_files.CHUNK + 10).tolist()
        context.read(0, tokens)
        llama_saved.restore(other, 0, bytearray(llama_saved.state(context, 0)))
        with pytest.raises(DecodeError, match="sliding"):
            other.truncate(0, memory_files.CHUNK - 1)  # the chunk before is gone
        rows = []
        for made in (context, other):
            made.forward([(0, [5, 6, 7, 8], 1)])
            made.truncate(0, len(tokens) + 1)  # a draft that was rejected
            rows.append(made.forward([(0, [9], 1)])[0].copy())
        np.testing.assert_allclose(rows[0], rows[1], atol=0.01)
    finally:
        for made in (context, other, loaded):
            made.close()


@pytest.mark.usefixtures("_always_worth_it")
def test_a_state_serves_whichever_drafter_comes_next(files: Files) -> None:
    with Runtime.open(options(files, drafter=("suffix",))) as runtime:
        runtime.keep_states()
        first, _ = ask(runtime, LONG)
        runtime.rest()
        expected, _ = ask(runtime, went_on(first))
    for drafter in ("tree", "lookahead", "off"):
        with Runtime.open(options(files, drafter=(drafter,))) as runtime:
            runtime.keep_states()
            found, _ = ask(runtime, went_on(first))
            assert found.reply.stats.cached_tokens > 100
            assert found.reply.tokens == expected.reply.tokens


@pytest.mark.usefixtures("_always_worth_it")
@pytest.mark.parametrize("kind", ["recurrent", "hybrid", "sliding"])
def test_a_state_that_would_have_to_be_cut_and_cannot_be_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    model = memory_files.KINDS[kind](tmp_path / f"{kind}.gguf")
    with Runtime.open(Options(str(model))) as runtime:
        runtime.keep_states()
        first, _ = ask(runtime, LONG)
        runtime.rest()
        expected, _ = ask(runtime, went_on(first))
    edited = [Message("user", LONG[0].content[:-40] + " edited")]
    loaded: list[kv_files.Saved] = []
    load = KvStore.load

    def watched(shelf: KvStore, saved: kv_files.Saved) -> bytearray:
        loaded.append(saved)
        return load(shelf, saved)

    monkeypatch.setattr(KvStore, "load", watched)
    with Runtime.open(Options(str(model))) as runtime:
        runtime.keep_states()
        assert ask(runtime, edited)[0].reply.stats.cached_tokens == 0
        assert not loaded
        assert ask(runtime, went_on(first))[0].reply.tokens == expected.reply.tokens
        assert loaded


def test_a_split_model_is_told_apart_by_all_its_files(tmp_path: Path) -> None:
    files = [tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2)]
    for path in files:
        path.write_bytes(b"the same metadata")
    first = fingerprint(files[0])
    files[1].write_bytes(b"other weights now")
    assert fingerprint(files[0]) != first


@pytest.mark.usefixtures("_always_worth_it")
def test_another_setting_reads_anew(files: Files) -> None:
    with Runtime.open(options(files)) as runtime:
        runtime.keep_states()
        first, _ = ask(runtime, LONG)
        runtime.rest()
    for changed in (
        options(files, kv_type="q8_0"),
        options(files, context=400),
        options(files, model=str(files.draft), draft="none"),
    ):
        with Runtime.open(changed) as runtime:
            runtime.keep_states()
            assert ask(runtime, went_on(first))[0].reply.stats.cached_tokens == 0


@pytest.mark.usefixtures("_always_worth_it")
def test_a_damaged_state_is_told_and_the_prompt_read(files: Files, tmp_path: Path) -> None:
    with Runtime.open(options(files)) as runtime:
        runtime.keep_states()
        first, _ = ask(runtime, LONG)
        runtime.rest()
        expected, _ = ask(runtime, LONG)
    (path,) = (tmp_path / "home").rglob("*.state")
    raw = bytearray(path.read_bytes())
    raw[-1000] ^= 1
    path.write_bytes(raw)
    with Runtime.open(options(files)) as runtime:
        runtime.keep_states()
        end, events = ask(runtime, LONG)
        assert end.reply.tokens == expected.reply.tokens
        assert end.reply.stats.cached_tokens == 0
        (notice,) = [e.text for e in events if isinstance(e, Notice)]
        assert "damaged" in notice
        assert not any(isinstance(e, Notice) for e in ask(runtime, went_on(first))[1])


@pytest.mark.usefixtures("_always_worth_it")
def test_a_state_that_cannot_be_written_is_told_with_the_next_reply(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: KvStore, *_: object, **given: object) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kv_files.KvStore, "put", full)
    with Runtime.open(options(files)) as runtime:
        runtime.keep_states()
        first, _ = ask(runtime, LONG)
        runtime.rest()
        _, events = ask(runtime, went_on(first))
        (notice,) = [e.text for e in events if isinstance(e, Notice)]
        assert "No space left" in notice


def test_what_is_read_faster_than_restored_is_not_kept(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search.Moving, "seconds", lambda *_: 1e9)
    with Runtime.open(options(files)) as runtime:
        runtime.keep_states()
        ask(runtime, LONG)
        runtime.rest()
    assert list((tmp_path / "home").rglob("*.state")) == []


def test_without_keep_states_nothing_is_kept(files: Files, tmp_path: Path) -> None:
    with Runtime.open(options(files)) as runtime:
        ask(runtime, LONG)
        runtime.rest()
    assert list((tmp_path / "home").rglob("*.state")) == []


# -- cold and warm -------------------------------------------------------------------------------


def replied(runtime: Runtime, messages: list[Message], **more: object) -> Reply:
    request = ReplyRequest(tuple(messages), sampling=GREEDY, seed=1, max_tokens=12, **more)
    return runtime.answer(request)


def assert_alike(runtime: Runtime, messages: list[Message], found: Reply) -> None:
    """A reply is the one to a prompt that is read from its first token, near-ties aside."""
    runtime.forget()
    cold = replied(runtime, messages)
    assert cold.stats.cached_tokens == 0
    pairs = enumerate(zip(found.tokens, cold.tokens, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), None)
    if at is not None:
        request = ReplyRequest(tuple(messages), sampling=GREEDY, seed=1)
        gap = runtime.examine(request, cold.tokens[: at + 1], found.tokens[at]).gap
        assert gap is not None
        assert gap < 0.02


@pytest.mark.usefixtures("_always_worth_it")
@pytest.mark.parametrize("kind", ["full", "sliding", "recurrent", "hybrid"])
def test_a_next_turn_that_does_not_quote_the_reply_reads_only_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A template that drops what the model thought does that."""
    # Restoring takes no time: on a busy machine it may take longer than reading with this model.
    monkeypatch.setattr(cache, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    model = memory_files.KINDS[kind](tmp_path / f"{kind}.gguf")
    with Runtime.open(Options(str(model), context=400)) as runtime:
        first = replied(runtime, LONG)
        dropped = [*LONG, Message("assistant", "Yes."), Message("user", "Go on.")]
        warm = replied(runtime, dropped)
        assert warm.stats.cached_tokens >= first.stats.prompt_tokens - 2
        assert warm.stats.saved_seconds > 0
        other = replied(runtime, [Message("user", "Another story: " + "no, no, no. " * 9)])
        assert other.stats.cached_tokens < 20
        back = replied(runtime, dropped)
        assert back.stats.cached_tokens >= first.stats.prompt_tokens - 2
        for found in (warm, back):
            assert_alike(runtime, dropped, found)


@pytest.mark.usefixtures("_always_worth_it")
@pytest.mark.parametrize("kind", ["full", "sliding"])
def test_strict_replies_are_the_same_bits_with_a_cold_and_a_warm_cache(
    tmp_path: Path, kind: str
) -> None:
    model = memory_files.KINDS[kind](tmp_path / f"{kind}.gguf")
    with Runtime.open(Options(str(model), context=400, strict=True)) as runtime:
        runtime.keep_states()
        replied(runtime, LONG)
        chat = [*LONG, Message("assistant", "Yes."), Message("user", "Go on.")]
        request = ReplyRequest(tuple(chat), sampling=Sampling(), seed=1)
        warm = replied(runtime, chat)
        assert warm.stats.cached_tokens > 100
        seen = runtime.examine(request, warm.tokens[:9])
        runtime.rest()
        runtime.forget()
        restored = replied(runtime, chat)
        assert restored.stats.cached_tokens > 100
        assert restored.tokens == warm.tokens
    with Runtime.open(Options(str(model), context=400, strict=True)) as runtime:
        cold = replied(runtime, chat)
        assert cold.stats.cached_tokens == 0
        assert cold.tokens == warm.tokens
        assert runtime.examine(request, warm.tokens[:9]) == seen


@pytest.mark.usefixtures("_always_worth_it")
def test_requests_of_other_owners_read_everything(files: Files) -> None:
    with Runtime.open(options(files)) as runtime:
        runtime.keep_states()
        prompt = replied(runtime, LONG, owner="a").stats.prompt_tokens
        runtime.rest()
        for owner, cached in (("b", 0), ("", 0), ("b", prompt - 1), ("a", prompt - 1)):
            assert replied(runtime, LONG, owner=owner).stats.cached_tokens == cached
            runtime.rest()


@pytest.mark.usefixtures("_always_worth_it")
def test_the_draft_model_does_not_read_a_restored_prompt_again(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    extend = LlamaDraftModel.extend

    def counted(self: LlamaDraftModel, work: list[tuple[int, list[int], int]]) -> object:
        read.append(sum(len(tokens) for _, tokens, _ in work))
        return extend(self, work)

    monkeypatch.setattr(LlamaDraftModel, "extend", counted)
    changes = {"draft_max": 3, "drafter": ("model",)}
    with Runtime.open(options(files, **changes)) as runtime:
        runtime.keep_states()
        first = replied(runtime, LONG)
        runtime.rest()
        assert max(read) > 100
        chat = [*LONG, Message("assistant", first.text), Message("user", "And then?")]
        expected = replied(runtime, chat)
    with Runtime.open(options(files, **changes)) as runtime:
        runtime.keep_states()
        read.clear()
        found = replied(runtime, chat)
        assert found.stats.cached_tokens > 100
        assert found.tokens == expected.tokens
        assert (
            found.stats.by_drafter["model"].accepted == expected.stats.by_drafter["model"].accepted
        )
        assert 0 < max(read) < 40


@pytest.mark.usefixtures("_always_worth_it")
@pytest.mark.parametrize("kind", ["full", "hybrid"])
def test_requests_side_by_side_share_what_one_of_them_has_read(tmp_path: Path, kind: str) -> None:
    model = memory_files.KINDS[kind](tmp_path / f"{kind}.gguf")
    endings = ["One.", "Two.", "Three."]
    chats = [[Message("system", LONG[0].content), Message("user", end)] for end in endings]
    with Runtime.open(Options(str(model), context=400, parallel=2)) as runtime:
        replied(runtime, chats[0])
        replied(runtime, chats[1])
        requests = [
            ReplyRequest(tuple(chat), sampling=GREEDY, seed=1, max_tokens=12) for chat in chats
        ]
        streams = [runtime.submit(request) for request in (*requests, requests[2])]
        found = [[*stream][-1].reply for stream in streams]
        shared = sum(reply.stats.cached_tokens > 200 for reply in found)
        # A recurrent sequence is not copied while it is extended.
        assert shared == 4 if kind == "full" else shared >= 3
        for chat, reply in zip(chats, found, strict=False):
            assert_alike(runtime, chat, reply)
