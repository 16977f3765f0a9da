"""Text at a cursor, on llama.cpp: drafted as plain, little read at a keystroke, ends in time."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import gguf_tools
import httpx2
import pytest
from conftest import Files
from replies import StopAfter, last
from served import Served, served
from waiting import until

from localspec import GREEDY, Notice, Options, ReplyRequest, Round, Runtime, Sampling
from localspec.core.errors import Interrupted, UsageError
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.infill import Chunk, Infill
from localspec.core.interrupt import Interrupt
from localspec.core.target import Work
from localspec.core.values import Scores
from localspec.llama.model import Model
from localspec.models.gguf.sizes import OUTPUTS
from localspec.serve.backend.model_facts import facts_of
from localspec.serve.http.settings import ServeSettings

BEFORE = (
    "def area(width, height):\n    return width * height\n\n\ndef volume(width, height, depth):\n"
)
AFTER = "\n\n\nprint(volume(1, 2, 3))\n"
EXTRA = (Chunk("shapes.py", "def area(width, height):\n    return width * height\n"),)
_N = len(gguf_tools.byte_vocabulary()) + len(gguf_tools.FILLING)
_WRITTEN = range(3, 97)
"""Tokens of characters that can be seen, by `byte_vocabulary`."""
ENDLESSLY = Sampling(
    temperature=0.0, logit_bias=tuple((t, -100.0) for t in range(_N) if t not in _WRITTEN)
)


class HoldAfter(StopAfter):
    """A policy that holds its reply once it has so many tokens, until another request is there."""

    def __init__(self, runtime: Runtime, tokens: int) -> None:
        super().__init__(runtime.pair.control.policy, tokens)
        self.held, self.go_on = threading.Event(), threading.Event()

    def reached(self) -> None:
        self.held.set()
        assert self.go_on.wait(60)


@pytest.fixture(scope="module")
def coder(files: Files) -> Path:
    """A model with tokens for a gap, and a context of 2048 tokens."""
    path = files.folder / "coder.gguf"
    return gguf_tools.write_llama(path, seed=3, context=2048, controls=gguf_tools.FILLING)


@pytest.fixture
def runtime(coder: Path) -> Iterator[Runtime]:
    options = Options(model=str(coder), drafter=("prediction", "suffix"), draft_max=4, threads=1)
    with Runtime.open(options) as found:
        yield found


def asked(typed: str = "", *, sampling: Sampling = ENDLESSLY, **fields: object) -> ReplyRequest:
    infill = Infill(BEFORE, AFTER, typed, EXTRA, **fields.pop("rules", {}))  # type: ignore[arg-type]
    return ReplyRequest(
        **{"infill": infill, "sampling": sampling, "seed": 1, "max_tokens": 24} | fields
    )


@pytest.mark.parametrize("names", ["usual", "by older keys"])
def test_the_tokens_are_those_of_the_file(files: Files, names: str) -> None:
    n = len(gguf_tools.byte_vocabulary())
    marks = gguf_tools.FILLING if names == "usual" else ("A1", "B2", "C3", "D4", "E5", "F6")
    older = {
        f"tokenizer.ggml.{k}_token_id": n + i for i, k in enumerate(("prefix", "suffix", "middle"))
    }
    path = files.folder / f"{names}.gguf"
    gguf_tools.write_llama(
        path, layers=1, controls=marks, numbers=None if names == "usual" else older
    )
    model = Model(path)
    found = [model.special_ids[f"fim_{part}"] for part in ("pre", "suf", "mid")]
    assert found == [n, n + 1, n + 2]
    assert model.special_ids["fim_sep"] == (n + 5 if names == "usual" else -1)
    model.close()
    facts = asyncio.run(facts_of(Options(model=str(path))))
    assert facts is not None
    assert facts.fills


def test_a_model_without_them_is_refused(files: Files) -> None:
    with (
        Runtime.open(Options(model=str(files.target), threads=1)) as runtime,
        pytest.raises(UsageError, match="load a model that has them"),
    ):
        runtime.answer(asked())


@pytest.mark.parametrize(
    "sampling",
    [GREEDY, Sampling(temperature=1.0), Sampling(repeat_penalty=1.3, top_k=12)],
    ids=["greedy", "warm", "penalties"],
)
@pytest.mark.parametrize("certain", [False, True])
def test_drafted_is_plain_at_every_keystroke(
    runtime: Runtime, sampling: Sampling, certain: bool
) -> None:
    drafted = 0
    for end in range(len("    return")):
        settings = {"sampling": sampling, "seed": end, "rules": {"certain": certain}}
        typed = "    return"[:end]
        reply = runtime.answer(asked(typed, draft_memory=True, **settings))
        assert reply.tokens == runtime.answer(asked(typed, draft=False, **settings)).tokens
        drafted += reply.stats.drafted
    assert drafted or certain


def test_a_keystroke_reads_what_is_new_and_the_suffix(runtime: Runtime) -> None:
    first = runtime.answer(asked())
    assert first.stats.cached_tokens == 0
    behind = len(AFTER) + 2  # a byte is a token here; and the two marks
    for end in range(1, len("    return width")):
        stats = runtime.answer(asked("    return width"[:end])).stats
        assert stats.prompt_tokens - stats.cached_tokens <= behind + 2
        assert stats.cached_tokens > len(BEFORE)


def test_with_the_suffix_first_a_keystroke_reads_what_was_typed(runtime: Runtime) -> None:
    rules = {"suffix_first": True}
    runtime.answer(asked(rules=rules))
    for end in range(1, len("    return width")):
        stats = runtime.answer(asked("    return width"[:end], rules=rules)).stats
        assert stats.prompt_tokens - stats.cached_tokens <= 3


def test_the_rest_of_a_suggestion_is_drafted_while_it_is_typed(runtime: Runtime) -> None:
    reply = runtime.answer(asked(draft_memory=True))
    assert reply.stats.accepted_prediction_tokens == 0
    again = runtime.answer(asked(draft_memory=True))
    assert again.tokens == reply.tokens
    assert again.stats.accepted_prediction_tokens == len(reply.tokens)
    assert again.stats.by_drafter["prediction"].accepted > len(reply.tokens) // 2
    typed = reply.text[:5]
    along = runtime.answer(asked(typed, draft_memory=True))
    assert along.stats.accepted_prediction_tokens + along.stats.rejected_prediction_tokens == 19
    runtime.forget()
    assert runtime.answer(asked(draft_memory=True)).stats.accepted_prediction_tokens == 0
    assert runtime.answer(asked()).stats.accepted_prediction_tokens == 0


def test_the_first_token_comes_from_the_pass_that_reads_what_is_new(runtime: Runtime) -> None:
    runtime.answer(asked())
    widths = runtime.pair.target.widths  # type: ignore[attr-defined]
    before = widths.copy()
    stats = runtime.answer(asked("    r", max_tokens=1)).stats
    new = stats.prompt_tokens - stats.cached_tokens
    assert widths - before == {new: 1}
    assert (stats.rounds, stats.verify_seconds) == (1, 0.0)  # the time is that of the prompt
    assert stats.prompt_seconds > 0


def test_the_first_token_waits_for_no_draft_though_a_suggestion_is_known(runtime: Runtime) -> None:
    reply = runtime.answer(asked(draft_memory=True))
    again = [*runtime.submit(asked(draft_memory=True))]
    first, *others = (event for event in again if isinstance(event, Round))
    assert (first.drafted, first.emitted) == (0, 1)
    assert others[0].drafted
    assert last(again).tokens == reply.tokens


def test_a_whole_prompt_is_read_in_the_pass_of_its_last_token(runtime: Runtime) -> None:
    widths = runtime.pair.target.widths  # type: ignore[attr-defined]
    right = runtime.answer(asked())
    runtime.forget()
    before = widths.copy()
    stats = runtime.answer(asked(max_tokens=1)).stats
    assert stats.prompt_tokens > OUTPUTS
    assert stats.cached_tokens == 0
    assert widths - before == {stats.prompt_tokens: 1}
    assert runtime.answer(asked()).tokens == right.tokens


def test_an_interrupt_in_that_pass_leaves_nothing_for_others_to_read(runtime: Runtime) -> None:
    right = runtime.answer(asked("    r"))
    runtime.forget()
    runtime.answer(asked())
    target = runtime.pair.target
    score = target.score

    def interrupted(work: Sequence[Work]) -> list[Scores]:
        target.score = score  # type: ignore[method-assign]
        raise Interrupted("interrupted")

    target.score = interrupted  # type: ignore[method-assign]
    assert runtime.answer(asked("    r")).finish_reason == "interrupt"
    assert target.length(0) == target.context.length(0)
    assert runtime.answer(asked("    r")).tokens == right.tokens


def test_who_leaves_while_the_prompt_is_read_for_a_forced_draft_harms_nobody(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grammar drafts though drafts wait; the prompt is then read in a pass of its own."""
    right = runtime.answer(asked())
    runtime.forget()
    target, leaves = runtime.pair.target, Interrupt()
    append = target._append  # type: ignore[attr-defined]

    def left(*given: object) -> None:
        monkeypatch.undo()
        leaves.set()
        append(*given)

    monkeypatch.setattr(target, "_append", left)
    forced = GrammarSpec.choice(["result = area(3, 4) and more text"])
    last(runtime.submit(asked(grammar=forced), interrupt=leaves))
    assert leaves.is_set()
    target.audit(0)
    assert target.length(0) == 0
    assert runtime.answer(asked()).tokens == right.tokens


def test_the_speed_leaves_out_the_token_whose_pass_is_the_prompt_s(runtime: Runtime) -> None:
    one = runtime.answer(asked(max_tokens=1)).stats
    assert (one.with_prompt, one.tokens_per_second) == (1, 0.0)
    stats = runtime.answer(asked("    r", max_tokens=9)).stats
    assert stats.tokens_per_second == pytest.approx(8 / stats.decode_seconds)


@pytest.mark.parametrize(("drafts", "state"), [(True, "parked"), (False, "off")])
def test_a_first_round_says_why_it_has_no_draft(runtime: Runtime, drafts: bool, state: str) -> None:
    events = [*runtime.submit(asked(draft=drafts))]
    first = next(event for event in events if isinstance(event, Round))
    assert first.speculation.state == state
    assert "reads" not in (first.speculation.reason or "")


def test_beside_another_reply_a_keystroke_is_read_before_its_first_round(coder: Path) -> None:
    options = Options(model=str(coder), drafter=("suffix",), draft_max=4, threads=1, parallel=2)
    with Runtime.open(options) as runtime:
        alone = runtime.answer(asked("    r"))
        runtime.forget()
        hold = HoldAfter(runtime, 2)
        other = runtime.submit(asked(max_tokens=400), policy=hold)
        assert hold.held.wait(60)
        stream = runtime.submit(asked("    r"))
        messages = runtime._scheduler._messages
        until(lambda: not messages.empty())
        hold.go_on.set()
        beside = last(stream)
        assert last(other).finish_reason == "length"
        assert beside.tokens == alone.tokens
        assert beside.stats.verify_seconds > 0
        assert alone.stats.rounds == beside.stats.rounds


def test_a_reply_ends_before_a_line_with_less_indentation(runtime: Runtime) -> None:
    newline = runtime.tokenize(ReplyRequest(prompt="\n")).tokens[0]
    forced = Sampling(temperature=0.0, logit_bias=((newline, 1000.0),))
    reply = runtime.answer(asked(sampling=forced, rules={"indent": 4}))
    assert (reply.text, reply.finish_reason, reply.stop_text) == ("\n", "length", None)


def test_after_its_time_a_reply_ends_with_its_line(runtime: Runtime) -> None:
    newline = runtime.tokenize(ReplyRequest(prompt="\n")).tokens[0]
    forced = Sampling(temperature=0.0, logit_bias=((newline, 1000.0),))
    reply = runtime.answer(asked(sampling=forced, rules={"predict_seconds": 1e-9}))
    assert (reply.text, reply.finish_reason) == ("\n", "length")


def test_a_prompt_that_takes_too_long_is_given_up_and_read_on_next_time(runtime: Runtime) -> None:
    *events, _ = stream = [*runtime.submit(asked(rules={"prompt_seconds": 1e-9}))]
    reply = last(stream)
    assert (reply.tokens, reply.finish_reason) == ((), "length")
    assert any(isinstance(e, Notice) and "the time for the prompt" in e.text for e in events)
    warm = runtime.answer(asked(max_tokens=0, rules={"prompt_seconds": 1e-9}))
    assert warm.stats.prompt_tokens > 0
    assert runtime.answer(asked()).stats.cached_tokens > len(BEFORE)


def test_what_an_interrupted_reply_has_read_stays(runtime: Runtime) -> None:
    stop = StopAfter(runtime.pair.control.policy, 3)
    reply = last(runtime.submit(asked(max_tokens=200), stop.interrupt, policy=stop))
    assert reply.finish_reason == "interrupt"
    assert runtime.answer(asked("    r")).stats.cached_tokens > len(BEFORE)


# -- over HTTP -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(coder: Path) -> Iterator[Served]:
    options = Options(model=str(coder), threads=1, parallel=1)
    with served(ServeSettings(port=0, max_tokens=400), options) as found:
        yield found


BODY = {
    "input_prefix": BEFORE,
    "input_suffix": AFTER,
    "input_extra": [{"filename": one.filename, "text": one.text} for one in EXTRA],
    "prompt": "    ",
    "n_predict": 12,
    "temperature": 0,
    "logit_bias": {str(token): -100 for token, _ in ENDLESSLY.logit_bias},
}


def post(server: Served, path: str = "/infill", **fields: object) -> httpx2.Response:
    return httpx2.post(server.url + path, json=BODY | fields, timeout=60)


def test_the_answer_has_llama_servers_fields(server: Served) -> None:
    answer = post(server, return_tokens=True).json()
    assert answer["stop"] is True
    assert answer["stop_type"] == "limit"
    assert answer["tokens_predicted"] == len(answer["tokens"]) == 12
    assert (
        answer["tokens_evaluated"] == answer["timings"]["cache_n"] + answer["timings"]["prompt_n"]
    )
    assert answer["generation_settings"]["temperature"] == 0
    wanted = ["content", "timings/predicted_n", "prompt", "none/such"]
    some = post(server, response_fields=wanted).json()
    assert some["content"] == answer["content"]
    assert some["timings/predicted_n"] == 12
    assert some["prompt"].endswith(f"{BEFORE}    <|fim_suffix|>{AFTER}<|fim_middle|>")
    assert set(some) == {"content", "timings/predicted_n", "prompt"}


def test_a_stream_has_the_same_text_and_ends_with_the_figures(server: Served) -> None:
    whole = post(server).json()["content"]
    lines = post(server, stream=True).text.strip().split("\n\n")
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data")]
    assert "".join(event["content"] for event in events) == whole
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["tokens_predicted"] == 12


def test_what_llama_vim_sends_is_answered(server: Served) -> None:
    figures = ("n", "ms", "per_token_ms", "per_second")
    timings = [f"timings/{of}_{figure}" for of in ("prompt", "predicted") for figure in figures]
    usual = {
        "id_slot": 0,
        "input_extra": [{"text": "import os\n", "time": [1, 2], "filename": "a.py"}],
        "n_indent": 4,
        "stop": [],
        "top_k": 40,
        "top_p": 0.9,
        "samplers": ["top_k", "top_p", "infill"],
        "stream": False,
        "cache_prompt": True,
        "t_max_prompt_ms": 60_000,
        "t_max_predict_ms": 60_000,
        "response_fields": ["content", *timings, "truncated", "tokens_cached"],
    }
    answer = post(server, **usual)
    assert answer.status_code == 200, answer.text
    assert set(answer.json()) == set(usual["response_fields"])  # type: ignore[call-overload]
    warming = {"n_predict": 0, "samplers": [], "t_max_prompt_ms": 1, "response_fields": [""]}
    assert post(server, **usual | warming).json() == {}
    assert not [notice for notice in server.notes.notices if "/infill" in notice]


def test_ollamas_clients_are_told_that_it_fills_gaps(server: Served) -> None:
    listed = httpx2.get(f"{server.url}/api/tags").json()["models"]
    can = {
        one["name"]: httpx2.post(f"{server.url}/api/show", json={"model": one["name"]}).json()
        for one in listed
    }
    assert "insert" in can["coder:latest"]["capabilities"]
    assert "insert" not in can["demo:latest"]["capabilities"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"input_prefix": 1}, "input_prefix"),
        ({"input_suffix": None}, "input_suffix"),
        ({"input_extra": [{"filename": "a"}]}, "text"),
        ({"n_indent": -1}, "n_indent"),
        ({"samplers": ["top_q"]}, "samplers"),
        ({"samplers": ["infill", "top_k"]}, "infill is the last sampler here"),
        ({"n_probs": 3}, "n_probs must be 0"),
    ],
)
def test_bad_input_is_refused_by_name(server: Served, fields: dict[str, object], said: str) -> None:
    answer = post(server, **fields)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]


def test_completions_with_a_suffix_fill_the_gap(server: Served) -> None:
    shared = {"temperature": 0, "max_tokens": 12, "logit_bias": BODY["logit_bias"]}
    given = {"prompt": BEFORE, "suffix": AFTER} | shared
    url = f"{server.url}/v1/completions"
    choice = httpx2.post(url, json=given, timeout=60).json()["choices"][0]
    filled = post(server, prompt="", input_extra=[]).json()
    assert choice["text"] == filled["content"]
    echoed = httpx2.post(url, json=given | {"echo": True}, timeout=60)
    assert echoed.json()["error"]["param"] == "echo"
    ids = httpx2.post(url, json=given | {"prompt": [5, 6]}, timeout=60)
    assert ids.json()["error"]["param"] == "suffix"


async def test_a_client_that_leaves_frees_its_place(server: Served) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps(BODY | {"n_predict": 400, "stream": True}).encode()
    for _ in range(3):
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /infill HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await reader.readuntil(b"data: ")
        writer.close()
    while server.service.queue.size:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.01)


def test_a_chat_model_says_what_to_load(files: Files) -> None:
    options = Options(model=str(files.target), threads=1, parallel=1)
    with served(ServeSettings(port=0), options) as server:
        for stream in (False, True):
            answer = post(server, stream=stream)
            assert answer.status_code == 400
            assert "Qwen2.5-Coder" in answer.json()["error"]["message"]
