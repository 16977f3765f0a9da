"""The Python API on a real (random) pair: prefix reuse, interrupts, ends, refusals."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import gguf_tools
import numpy as np
import pytest
from conftest import Files
from replies import HELLO, WARM, WaitAfter, exact, last

from localspec import (
    GREEDY,
    Finished,
    Message,
    Notice,
    Options,
    Origin,
    Reading,
    Reply,
    ReplyRequest,
    Round,
    Runtime,
    Sampling,
    Token,
)
from localspec.cli import call
from localspec.core.errors import (
    ContextError,
    DraftIncompatibleError,
    Interrupted,
    ModelNotFoundError,
    OutOfMemoryError,
    UsageError,
)
from localspec.core.files import paths
from localspec.core.interrupt import Interrupt
from localspec.generation.prefill import Prefill


def options(files: Files, **changes: object) -> Options:
    settings = {"model": str(files.target), "draft": str(files.draft), "draft_max": 3} | changes
    return Options(**settings)


@pytest.fixture
def runtime(files: Files) -> Iterator[Runtime]:
    with Runtime.open(options(files)) as opened:
        yield opened


def test_one_text_may_be_given_as_the_stop(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text is a sequence of texts too: each of its letters would end the reply."""
    asked: list[ReplyRequest] = []
    monkeypatch.setattr(runtime, "submit", asked.append)
    for stop in ("end", ["end"]):
        runtime.reply(HELLO, stop=stop)
        runtime.complete("abc", stop=stop)
    assert [request.stop for request in asked] == [("end",)] * 4


@pytest.mark.parametrize("drafter", [None, ("model",)])
def test_drafting_leaves_the_text_alone(files: Files, drafter: tuple[str, ...] | None) -> None:
    with Runtime.open(options(files, drafter=drafter)) as runtime:
        for sampling in (GREEDY, WARM, Sampling(repeat_penalty=1.3)):
            for seed in range(3):
                assert exact(runtime, sampling, 40, seed).stats.drafted


def test_a_plain_reply_has_plain_tokens_only(runtime: Runtime) -> None:
    plain = last(runtime.reply(HELLO, sampling=WARM, seed=1, max_tokens=20, draft=False))
    assert set(plain.origins) == {Origin.PLAIN}


def test_rejection_drafts_and_finishes(files: Files) -> None:
    with Runtime.open(options(files, verifier="rejection")) as runtime:
        reply = last(runtime.reply(HELLO, sampling=WARM, seed=1, max_tokens=40))
        assert reply.stats.drafted > 0


def test_events_add_up_to_the_reply(runtime: Runtime) -> None:
    events = list(runtime.reply(HELLO, sampling=WARM, seed=4, max_tokens=30))
    tokens = [e for e in events if isinstance(e, Token)]
    rounds = [e for e in events if isinstance(e, Round)]
    reply = events[-1].reply
    assert isinstance(events[0], Reading)
    assert tuple(t.token for t in tokens) == reply.tokens
    assert tuple(t.origin for t in tokens) == reply.origins
    assert "".join(t.text for t in tokens) == reply.text
    assert sum(r.emitted for r in rounds) == reply.stats.emitted == len(reply.tokens)
    assert len(rounds) == reply.stats.rounds
    assert sum(r.accepted for r in rounds) == reply.stats.accepted
    assert sum(d.accepted for d in reply.stats.by_drafter.values()) == reply.stats.accepted
    assert reply.stats.accepted <= reply.stats.verified <= reply.stats.drafted


def test_a_second_turn_reads_only_what_is_new(runtime: Runtime) -> None:
    first = last(runtime.reply(HELLO, sampling=WARM, seed=1, max_tokens=20))
    assert first.stats.cached_tokens == 0
    turn = [*HELLO, Message("assistant", first.text), Message("user", "And now?")]
    second = last(runtime.reply(turn, sampling=WARM, seed=2, max_tokens=20))
    kept = first.stats.prompt_tokens + len(first.tokens) - 1
    assert second.stats.cached_tokens in {kept, kept - 1}  # the end token may be read again
    fresh = last(runtime.reply(turn, sampling=WARM, seed=2, max_tokens=20, draft=False))
    assert fresh.tokens == second.tokens


def request(**changes: object) -> ReplyRequest:
    return ReplyRequest(tuple(HELLO), **{"sampling": WARM, "seed": 1, **changes})


def test_interrupt_keeps_the_partial_and_the_next_reply_works(runtime: Runtime) -> None:
    asked = request(max_tokens=200)
    seen = []
    for event in runtime.submit(asked, policy=WaitAfter(runtime, 5)):
        seen.append(event)
        if sum(isinstance(e, Token) for e in seen) == 5:
            runtime.interrupt()
    reply = seen[-1].reply
    assert reply.finish_reason == "interrupt"
    assert reply.tokens == tuple(e.token for e in seen if isinstance(e, Token))
    again = runtime.answer(asked)
    assert again.tokens[: len(reply.tokens)] == reply.tokens
    assert len(again.tokens) > len(reply.tokens)
    assert again.finish_reason != "interrupt"


def test_interrupt_while_the_prompt_is_read(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    with Runtime.open(options(files)) as runtime:
        interrupted = threading.Event()
        target = runtime.pair.target
        read = target.read

        def held(seq: int, tokens: Sequence[int]) -> None:
            assert interrupted.wait(100)
            read(seq, tokens)

        monkeypatch.setattr(target, "read", held)
        events = runtime.reply([Message("user", "x" * 300)], sampling=WARM, seed=1)
        assert isinstance(next(events), Reading)
        runtime.interrupt()
        interrupted.set()
        reply = last(events)
        assert reply.finish_reason == "interrupt"
        assert reply.tokens == ()
        assert last(runtime.reply(HELLO, sampling=WARM, seed=1, max_tokens=3)).tokens


def test_a_reader_that_stops_reading_leaves_the_runtime_usable(runtime: Runtime) -> None:
    events = runtime.reply(HELLO, sampling=WARM, seed=1, max_tokens=50)
    for event in events:
        if isinstance(event, Token):
            break
    events.close()
    whole = last(runtime.reply(HELLO, sampling=WARM, seed=1, max_tokens=50))
    plain = last(runtime.reply(HELLO, sampling=WARM, seed=1, max_tokens=50, draft=False))
    assert whole.tokens == plain.tokens


def test_a_closed_runtime_says_so(files: Files) -> None:
    runtime = Runtime.open(options(files))
    events = runtime.reply(HELLO, seed=1)
    next(events)
    runtime.close()
    events.close()
    with pytest.raises(UsageError, match="closed"):
        list(runtime.reply(HELLO))


@pytest.mark.parametrize("events_before", [1, 2, 4, 8])
def test_closing_between_two_events_ends_the_reply(files: Files, events_before: int) -> None:
    runtime = Runtime.open(options(files))
    held = WaitAfter(runtime, events_before)
    events = runtime.submit(request(sampling=GREEDY), policy=held)
    for _ in range(events_before):
        next(events)
    runtime.close()
    assert last(events).finish_reason == "interrupt"


def test_a_reply_that_was_cut_goes_on_as_if_it_had_not_been(runtime: Runtime) -> None:
    whole = last(runtime.reply(HELLO, sampling=GREEDY, max_tokens=30)).tokens
    begun = last(runtime.reply(HELLO, sampling=GREEDY, max_tokens=11))
    unfinished = [*HELLO, Message("assistant", begun.text)]
    rest = last(runtime.reply(unfinished, sampling=GREEDY, max_tokens=19))
    assert (*begun.tokens, *rest.tokens) == whole
    assert rest.stats.cached_tokens >= rest.stats.prompt_tokens - 1


def test_stop_strings_end_the_text_before_them(runtime: Runtime) -> None:
    whole = last(runtime.reply(HELLO, sampling=WARM, seed=9, max_tokens=60))
    stop = whole.text[6:9]
    events = list(runtime.reply(HELLO, sampling=WARM, seed=9, max_tokens=60, stop=[stop]))
    reply = events[-1].reply
    assert reply.finish_reason == "stop"
    assert reply.text == whole.text[: whole.text.index(stop)]
    assert "".join(e.text for e in events if isinstance(e, Token)) == reply.text


def test_max_tokens_is_kept_to_the_token(runtime: Runtime) -> None:
    for n in range(1, 7):
        reply = last(runtime.reply(HELLO, sampling=GREEDY, max_tokens=n))
        assert len(reply.tokens) == n
        assert reply.finish_reason == "length"


def test_a_full_context_ends_the_reply_and_says_so(files: Files) -> None:
    with Runtime.open(options(files, context=256)) as runtime:
        prompt = [Message("user", "y" * 100)]
        for draft in (True, False):
            seed = next(
                s
                for s in range(50)
                if last(runtime.reply(prompt, sampling=GREEDY, seed=s)).finish_reason == "length"
            )
            events = list(runtime.reply(prompt, sampling=GREEDY, seed=seed, draft=draft))
            reply = events[-1].reply
            capacity = runtime.info.context
            assert reply.stats.prompt_tokens + len(reply.tokens) == capacity + 1
            assert any(isinstance(e, Notice) and "is full" in e.text for e in events)


def test_old_turns_are_dropped_and_the_person_is_told(files: Files) -> None:
    with Runtime.open(options(files, context=256)) as runtime:
        chat = [Message("system", "Be brief.")]
        for i in range(6):
            chat += [Message("user", f"{i}" * 40), Message("assistant", "ok")]
        chat.append(Message("user", "last"))
        events = list(runtime.reply(chat, sampling=GREEDY, max_tokens=8))
        notices = [e.text for e in events if isinstance(e, Notice)]
        assert any("oldest messages were left out" in text for text in notices)
        assert events[-1].reply.stats.prompt_tokens <= runtime.info.context


def test_a_message_longer_than_the_context_is_refused_with_numbers(runtime: Runtime) -> None:
    with pytest.raises(ContextError, match=r"\d+ tokens.*context size of 512"):
        list(runtime.reply([Message("user", "z" * 5000)]))
    with pytest.raises(ContextError, match=r"\d+ tokens.*context size of 512"):
        list(runtime.complete("z" * 5000))
    assert last(runtime.reply(HELLO, max_tokens=3, sampling=GREEDY)).tokens


def test_raw_completion_uses_no_template(runtime: Runtime) -> None:
    reply = last(runtime.complete("abc", sampling=GREEDY, max_tokens=4))
    assert reply.stats.prompt_tokens == 3
    with pytest.raises(UsageError, match="empty"):
        list(runtime.complete(""))


def test_fewer_tokens_than_none_are_refused(runtime: Runtime) -> None:
    with pytest.raises(UsageError, match="max_tokens"):
        list(runtime.reply(HELLO, max_tokens=-1))


def test_the_same_seed_gives_the_same_text_and_another_seed_another(runtime: Runtime) -> None:
    a, b, c = (
        last(runtime.reply(HELLO, sampling=WARM, seed=s, max_tokens=30)).tokens for s in (5, 5, 6)
    )
    assert a == b != c
    drawn = last(runtime.reply(HELLO, sampling=WARM, max_tokens=30))
    assert (
        last(runtime.reply(HELLO, sampling=WARM, seed=drawn.seed, max_tokens=30)).tokens
        == drawn.tokens
    )


def test_a_foreign_draft_is_explained_and_ngrams_take_over(files: Files, tmp_path: Path) -> None:
    words = gguf_tools.byte_vocabulary()
    words[100:160] = [f"unknown{i}" for i in range(60)]
    foreign = gguf_tools.write_llama(tmp_path / "foreign.gguf", vocabulary=words)
    with Runtime.open(options(files, draft=str(foreign))) as runtime:
        assert "differ from id 100" in runtime.info.notices[0]
        assert "drafting from the text" in runtime.info.notices[0]
        assert runtime.info.draft is None
        assert runtime.info.speculation.state == "on"
        reply = last(runtime.complete("abcabcabcabc", sampling=GREEDY, max_tokens=30))
        assert set(reply.stats.by_drafter) <= {"suffix"}
    with pytest.raises(DraftIncompatibleError, match="differ from id 100"):
        Runtime.open(options(files, draft=str(foreign), require_draft=True))


def test_a_recurrent_draft_is_explained_and_ngrams_take_over(files: Files, tmp_path: Path) -> None:
    draft = gguf_tools.write_mamba(tmp_path / "mamba.gguf")
    with Runtime.open(options(files, draft=str(draft))) as runtime:
        assert any("recurrent" in notice for notice in runtime.info.notices)
        reply = last(runtime.reply(HELLO, sampling=GREEDY, max_tokens=20))
        assert set(reply.stats.by_drafter) <= {"suffix"}


@pytest.mark.parametrize("drafter", ["model", "tree"])
@pytest.mark.parametrize("sampling", [GREEDY, WARM])
def test_a_draft_that_computes_no_numbers_is_left_alone_and_the_person_told(
    files: Files, tmp_path: Path, drafter: str, sampling: Sampling
) -> None:
    """A damaged file gives such a draft."""
    broken = gguf_tools.write_llama(tmp_path / "broken.gguf", layers=1, seed=3)
    for tensor in gguf.GGUFReader(broken, "r+").tensors:
        if tensor.name == "output_norm.weight":
            tensor.data[:] = np.nan
    with Runtime.open(options(files, draft=str(broken), drafter=(drafter,))) as runtime:
        plain = last(runtime.reply(HELLO, sampling=sampling, seed=1, max_tokens=20, draft=False))
        events = list(runtime.reply(HELLO, sampling=sampling, seed=1, max_tokens=20))
        again = list(runtime.reply(HELLO, sampling=sampling, seed=2, max_tokens=20))
    assert last(iter(events)).tokens == plain.tokens
    told = [
        [event.text for event in said if isinstance(event, Notice) and "not numbers" in event.text]
        for said in (events, again)
    ]
    assert [len(lines) for lines in told] == [1, 0]


def test_without_a_draft_ngrams_draft_alone(files: Files) -> None:
    with Runtime.open(options(files, draft="none")) as runtime:
        assert runtime.info.draft is None
        assert runtime.info.speculation.state == "on"


def test_off_is_off_and_says_why(files: Files) -> None:
    for change in ({"drafter": ("off",)}, {"draft_max": 0}):
        with Runtime.open(options(files, **change)) as runtime:
            reply = last(runtime.reply(HELLO, sampling=GREEDY, max_tokens=5))
            assert reply.stats.speculation.state == "off"
            assert reply.stats.speculation.reason == "switched off"
            assert reply.stats.drafted == 0
    with Runtime.open(options(files, draft="none", drafter=("model",))) as runtime:
        assert runtime.info.speculation.reason == "there is no draft model"


def test_a_missing_draft_that_was_named_is_an_error(files: Files) -> None:
    with pytest.raises(ModelNotFoundError, match=r"gone\.gguf"):
        Runtime.open(options(files, draft=str(files.folder / "gone.gguf")))


def test_absurd_options_are_refused_before_anything_is_loaded(files: Files) -> None:
    for change, word in (
        ({"context": 3}, "ctx"),
        ({"threads": 0}, "threads"),
        ({"draft_max": 64}, "draft_max"),
        ({"draft_max": -2}, "draft_max"),
        ({"gpu_layers": -5}, "gpu_layers"),
        ({"verifier": "hope"}, "rejection"),
        ({"drafter": ("oracle",)}, "oracle"),
        ({"drafter": ("off", "model")}, "combined"),
    ):
        with pytest.raises(UsageError, match=word):
            options(files, **change)


def test_what_cannot_fit_is_refused_with_numbers(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = type("Memory", (), {"total": 10**9, "available": 10**6})
    monkeypatch.setattr("psutil.virtual_memory", lambda: small)
    with pytest.raises(OutOfMemoryError, match=r"40000 tokens.*GB"):
        Runtime.open(options(files, context=40_000))
    small.total = 1000
    with pytest.raises(OutOfMemoryError, match=r"target\.gguf.*GB"):
        Runtime.open(options(files))


def test_loading_can_be_cancelled(files: Files) -> None:
    with pytest.raises(Interrupted):
        Runtime.open(options(files), cancelled=lambda: True)


def test_loading_a_draft_of_the_catalogue_can_be_cancelled(files: Files) -> None:
    own = paths.config_dir() / "models.toml"
    own.parent.mkdir(parents=True)
    own.write_text(f'[mine]\ntarget = "{files.target}"\ndraft = "{files.draft}"\n')
    names: list[str] = []
    with pytest.raises(Interrupted):
        Runtime.open(
            Options(model="mine", threads=1),
            lambda event: names.append(event.name),
            cancelled=lambda: files.draft.name in names,
        )


def test_a_template_that_runs_in_a_process_of_its_own_does_not_keep_a_model_from_opening(
    files: Files, tmp_path: Path
) -> None:
    template = "{% macro turn(m) %}[{{ m.role }}]{{ m.content }}{% endmacro %}"
    template += "{% for m in messages %}{{ turn(m) }}{% endfor %}"
    path = gguf_tools.write_llama(tmp_path / "macro.gguf", template=template)
    with Runtime.open(Options(model=str(path), drafter=("off",), context=256)) as runtime:
        assert runtime.render([Message("user", "hi")]) == "[user]hi"


def test_a_file_that_does_not_say_how_texts_are_split_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """llama.cpp says so in its log alone."""
    whole = gguf_tools.write_llama(tmp_path / "whole.gguf")
    old = tmp_path / "old.gguf"
    old.write_bytes(whole.read_bytes().replace(b"tokenizer.ggml.pre", b"tokenizer.ggml.old"))
    for path, told in ((whole, False), (old, True)):
        with Runtime.open(Options(model=str(path), drafter=("off",), context=256)) as runtime:
            notices = [n for n in runtime.info.notices if "tokenizer.ggml.pre" in n]
            assert len(notices) == told
        for words in (["show", str(path), "--offline"], ["show", str(path), "--offline", "--json"]):
            assert call(words) == 0
            assert ("tokenizer.ggml.pre" in capsys.readouterr().out) is told
    (notice,) = notices
    assert "old.gguf" in notice
    assert "newer conversion" in notice
    assert "\n" not in notice


def test_a_model_without_a_template_gets_a_plain_one(files: Files, tmp_path: Path) -> None:
    bare = gguf_tools.write_llama(tmp_path / "bare.gguf", template=None)
    with Runtime.open(Options(model=str(bare), draft_max=2)) as runtime:
        assert "no chat template" in runtime.info.notices[0]
        reply = last(runtime.reply(HELLO, sampling=GREEDY, max_tokens=5))
        assert "User" not in reply.text


def test_two_runtimes_in_two_threads_do_not_disturb_each_other(files: Files) -> None:
    found: dict[int, tuple[int, ...]] = {}

    def work(name: int) -> None:
        with Runtime.open(options(files)) as runtime:
            found[name] = last(runtime.reply(HELLO, sampling=WARM, seed=1, max_tokens=60)).tokens

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1]


def test_a_place_of_a_reply_is_examined_and_the_next_reply_does_not_notice(
    runtime: Runtime,
) -> None:
    def ask() -> Reply:
        *_, last = runtime.reply(HELLO, sampling=WARM, seed=5, max_tokens=24)
        assert isinstance(last, Finished)
        return last.reply

    before = ask()
    for at in (1, 20, 3, len(before.tokens)):
        known = before.tokens[:at]
        request = ReplyRequest(tuple(HELLO), sampling=WARM, seed=5, max_tokens=24)
        found = runtime.examine(request, known, known[-1])
        assert found.chosen.token == known[-1]
        assert found.chosen.p > 0
        assert found.gap == 0  # the same seed makes the same choice
        assert found.chosen.q is not None
        likeliest = [c.model for c in found.candidates]
        assert likeliest == sorted(likeliest, reverse=True)
        assert sum(c.p for c in found.candidates) <= 1 + 1e-6
    assert ask().tokens == before.tokens


@pytest.mark.parametrize("given", [{"prompt": "Once upon"}, {"prompt_tokens": (7, 8, 9)}])
def test_a_reply_to_a_raw_prompt_is_examined_too(runtime: Runtime, given: dict[str, Any]) -> None:
    request = ReplyRequest((), sampling=WARM, seed=5, max_tokens=8, **given)
    reply = last(runtime.submit(request))
    for at in range(1, len(reply.tokens) + 1):
        found = runtime.examine(request, reply.tokens[:at], reply.tokens[at - 1])
        assert found.gap == 0  # the same seed makes the same choice


def test_what_cannot_be_examined_is_said(runtime: Runtime) -> None:
    request = ReplyRequest(tuple(HELLO), sampling=WARM, seed=1)
    for tokens in ([], [-1], [1 << 30]):
        with pytest.raises(UsageError, match="tokens"):
            runtime.examine(request, tokens)
    with pytest.raises(ContextError):
        runtime.examine(request, [3] * 100_000)


def test_a_place_for_which_nobody_waits_any_more_is_read_no_further(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt, parts = Interrupt(), []

    def row_after(_prefill: Prefill, known: Sequence[int], *_: object) -> None:
        parts.append(known)
        interrupt.set()  # its client leaves while a part is read

    monkeypatch.setattr(Prefill, "row_after", row_after)
    request = ReplyRequest(tuple(HELLO), sampling=WARM, seed=1)
    with pytest.raises(Interrupted):
        runtime.examine(request, [3] * 200, None, interrupt)
    assert len(parts) == 1


def test_an_interrupt_before_the_first_event_is_kept(runtime: Runtime) -> None:
    stream = runtime.submit(request(), policy=WaitAfter(runtime, 0))
    stream.interrupt()
    *_, last = stream
    assert isinstance(last, Finished)
    assert last.reply.finish_reason == "interrupt"
    assert not last.reply.tokens


def test_an_interrupt_of_one_request_is_not_that_of_the_next(runtime: Runtime) -> None:
    first = runtime.submit(ReplyRequest(tuple(HELLO), sampling=WARM, seed=1, max_tokens=20))
    whole = last(first)
    first.interrupt()
    again = runtime.answer(ReplyRequest(tuple(HELLO), sampling=WARM, seed=1, max_tokens=20))
    assert again.tokens == whole.tokens
    assert again.finish_reason != "interrupt"


def test_a_raw_prompt_and_a_conversation_are_not_asked_at_once() -> None:
    with pytest.raises(UsageError, match="one of them"):
        ReplyRequest(tuple(HELLO), prompt="abc")
