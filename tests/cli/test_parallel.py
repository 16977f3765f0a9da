"""``run --parallel``: lines in, JSON lines out, in their order, whatever happens to one of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import Files
from waiting import until

from localspec import cli
from localspec.cli import parallel
from localspec.cli.interrupt import CtrlC
from localspec.cli.output import ReaderGoneError
from localspec.cli.prompt_file import Around, read_prompts
from localspec.core.emitted import Origin
from localspec.core.errors import UsageError, WorkerLostError
from localspec.core.events import Message, Token
from localspec.core.reply_request import ReplyRequest
from localspec.core.reply_tally import ReplyTally
from localspec.core.sampling_params import Sampling


def written(folder: Path, *lines: object) -> str:
    path = folder / "prompts"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n")
    return str(path)


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def run(files: Files, file: str, *more: str) -> tuple[int, str]:
    model = ["-m", str(files.target), "-d", "none", "--threads", "1", "--ctx", "256"]
    return cli.call(["run", "--parallel", file, *model, "-n", "8", "-t", "0", *more])


def objects(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_every_line_is_answered_as_it_would_be_alone_in_the_order_of_the_lines(
    files: Files, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    prompts = ["hello", "one two three", "", "a much longer prompt than the others", "x"]
    assert run(files, written(tmp_path, *prompts), "--jobs", "3") == 0
    found = objects(capfd.readouterr().out)
    assert [item["index"] for item in found] == [0, 1, 2, 3]
    for item, prompt in zip(found, filter(None, prompts), strict=True):
        args = ["run", prompt, "-m", str(files.target), "-d", "none", "--threads", "1", "--json"]
        assert cli.call([*args, "--ctx", "256", "-n", "8", "-t", "0"]) == 0
        (alone,) = objects(capfd.readouterr().out)
        assert item["tokens"] == alone["tokens"]
        assert set(item) == {"index", *alone}


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1e"])
def test_only_line_feeds_and_carriage_returns_end_a_line(tmp_path: Path, mark: str) -> None:
    file = tmp_path / "prompts"
    file.write_bytes(f"one{mark}a\r\ntwo{mark}b\n\nthree\rfour".encode())
    assert [(line.number, line.text) for line in read_prompts(str(file))] == [
        (1, f"one{mark}a"),
        (2, f"two{mark}b"),
        (4, "three"),
        (5, "four"),
    ]


def test_json_lines_may_hold_line_separators_and_begin_with_a_byte_order_mark(
    tmp_path: Path,
) -> None:
    file = tmp_path / "prompts"
    texts = ["one\u2028two", "three\x85four"]
    lines = [json.dumps({"prompt": text}, ensure_ascii=False) for text in texts]
    file.write_text("\n".join(lines), encoding="utf-8-sig")
    found = read_prompts(str(file))
    requests = [line.request(ReplyRequest(), Around()) for line in found]
    assert [request.prompt for request in requests] == texts


def test_a_bad_line_is_an_error_of_its_own(
    files: Files, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = [
        {"messages": said("hello"), "max_tokens": 3},
        {"messages": said("x" * 1000)},
        {"wrong": 1},
        "{",
        {"prompt": "abc", "sampling": {"temperature": 1.0}, "seed": 4},
        {"messages": said("x"), "sampling": {"top_p": 7}},
    ]
    assert run(files, written(tmp_path, *lines)) == 1
    captured = capfd.readouterr()
    found = objects(captured.out)
    assert [item["index"] for item in found] == [*range(6)]
    assert len(found[0]["tokens"]) == 3
    assert (found[4]["seed"], len(found[4]["tokens"])) == (4, 8)
    errors = [found[i]["error"] for i in (1, 2, 3, 5)]
    assert "too long" in errors[0]
    assert errors[1] == "line 3: request: unknown field 'wrong'"
    assert errors[2].startswith("line 4: not a JSON object")
    assert "top_p" in errors[3]
    assert all(found[i]["exit_code"] == 2 for i in (1, 2, 3, 5))
    assert "4 failed" in captured.err


class Slow:
    """A runtime whose replies the user interrupts: of the third line on, nothing is begun."""

    class info:  # noqa: N801 - read as an attribute
        notices: Sequence[str] = ()
        parallel = 1

    def __init__(self, ctrl_c: CtrlC) -> None:
        self._ctrl_c = ctrl_c
        self.asked: list[str] = []

    def submit(self, request: ReplyRequest) -> Any:
        self.asked.append(request.messages[-1].content)
        if len(self.asked) == 2:
            self._ctrl_c.pressed = True
        raise UsageError(f"answered {self.asked[-1]}")

    def interrupt(self) -> None:
        """Nothing runs."""


def test_what_was_answered_before_an_interruption_is_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = read_prompts(written(tmp_path, "one", "two", "three", "four"))
    ctrl_c = CtrlC()
    runtime: Any = Slow(ctrl_c)
    batch = parallel.ParallelRun(runtime, lines, ReplyRequest(), Around(), ctrl_c=ctrl_c)
    assert batch.run() == 130
    found = objects(capfd.readouterr().out)
    # Which line a second worker begins with is chance.
    assert {item["error"] for item in found} == {f"answered {asked}" for asked in runtime.asked}
    assert [item["index"] for item in found] == sorted(item["index"] for item in found)
    assert 2 <= len(found) < 4


class Running(Slow):
    """A runtime whose replies, one for each worker, run until the user interrupts them."""

    def __init__(self, ctrl_c: CtrlC) -> None:
        super().__init__(ctrl_c)
        self._ended = threading.Event()

    def submit(self, request: ReplyRequest) -> Any:
        self.asked.append(request.messages[-1].content)
        if len(self.asked) == 1 + self.info.parallel:
            self._ctrl_c.pressed = True
        assert self._ended.wait(20)
        raise UsageError("answered")

    def interrupt(self) -> None:
        self._ended.set()


@pytest.mark.timeout(30)
def test_an_interruption_ends_the_run_where_lines_wait_behind_a_reply(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = read_prompts(written(tmp_path, *"abcdefgh"))
    ctrl_c = CtrlC()
    runtime: Any = Running(ctrl_c)
    batch = parallel.ParallelRun(runtime, lines, ReplyRequest(), Around(), ctrl_c=ctrl_c)
    assert batch.run() == 130
    captured = capfd.readouterr()
    assert [item["error"] for item in objects(captured.out)] == ["answered"] * 2
    assert "6 left out" in captured.err


class First(Running):
    """A runtime that answers the first line; its other replies run until they are interrupted."""

    def submit(self, request: ReplyRequest) -> Any:
        self.asked.append(request.messages[-1].content)
        assert self.asked[-1] == "a" or self._ended.wait(20)
        raise UsageError("answered")


@pytest.mark.timeout(60)
def test_nothing_is_computed_for_a_reader_that_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: object) -> None:
        raise ReaderGoneError

    monkeypatch.setattr(parallel, "write_json", gone)
    lines = read_prompts(written(tmp_path, *"abcdefgh"))
    ctrl_c = CtrlC()
    runtime: Any = First(ctrl_c)
    batch = parallel.ParallelRun(runtime, lines, ReplyRequest(), Around(), ctrl_c=ctrl_c)
    with pytest.raises(ReaderGoneError):
        batch.run()
    assert runtime._ended.is_set()
    assert len(runtime.asked) <= 3  # the one that was answered, and those of two workers


class Breaking:
    """A runtime whose replies have two tokens: the line says how it ends. A defect comes once the
    last line is answered.
    """

    batch: parallel.ParallelRun

    class info:  # noqa: N801 - read as an attribute
        notices: Sequence[str] = ()
        parallel = 1
        target, draft, backend = "t", None, "b"

    def submit(self, request: ReplyRequest) -> Any:
        said = request.messages[-1].content
        tally = ReplyTally(request.seed)
        if said == "refused":
            raise UsageError("refused")
        for token, text in enumerate(("Hel", "lo" * (4000 if said == "long" else 1))):
            event = Token(token, text, Origin.PLAIN, None)
            tally.take(event)
            yield event
        if said == "breaks off":
            raise WorkerLostError("the worker is gone")
        if said == "defect":
            last, held = len(self.batch._lines) - 1, self.batch._unwritten
            until(lambda: '"complete"' not in held.get(last, '"complete"'))
            raise RuntimeError(said)
        yield tally.finished("stop")

    def interrupt(self) -> None:
        """Nothing runs for long."""


def broken(tmp_path: Path, *texts: str) -> parallel.ParallelRun:
    runtime: Any = Breaking()
    lines = read_prompts(written(tmp_path, *texts))
    runtime.batch = parallel.ParallelRun(runtime, lines, ReplyRequest(), Around(), ctrl_c=CtrlC())
    return runtime.batch


def test_what_had_arrived_of_a_line_that_breaks_off_is_in_its_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert broken(tmp_path, "ends", "breaks off", "refused").run() == 1
    whole, cut, refused = objects(capfd.readouterr().out)
    assert (whole["text"], "complete" in whole) == ("Hello", False)
    assert (cut["error"], cut["exit_code"]) == ("the worker is gone", WorkerLostError.exit_code)
    assert (cut["text"], cut["tokens"], cut["complete"]) == ("Hello", [0, 1], False)
    assert set(cut) == {"error", "exit_code", "complete", *whole}
    assert set(refused) == {"index", "error", "exit_code"}


def test_a_command_that_breaks_off_prints_what_it_has_of_every_line_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError, match="defect"):
        broken(tmp_path, "ends", "defect", "ends").run()
    found = objects(capfd.readouterr().out)
    assert [(one["index"], one["text"], one.get("complete")) for one in found] == [
        (0, "Hello", None),
        (1, "Hello", False),
        (2, "Hello", None),
    ]


def test_of_more_than_can_be_held_the_lines_that_fit_are(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "HELD_BYTES", 4000)
    with pytest.raises(RuntimeError, match="defect"):
        broken(tmp_path, "defect", "long", "ends").run()
    assert [one["index"] for one in objects(capfd.readouterr().out)] == [0, 2]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no line with a prompt"),
        (b" \n\n", "no line with a prompt"),
        (b"\xff\n", "not valid UTF-8"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "prompts"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=words):
        read_prompts(str(path))


def test_a_prompt_beside_the_file_is_refused(tmp_path: Path) -> None:
    assert cli.call(["run", "--parallel", written(tmp_path, "one"), "hello"]) == 2


def test_a_line_changes_only_what_it_names(tmp_path: Path) -> None:
    base = ReplyRequest(sampling=Sampling(temperature=0.5, top_k=7), seed=3, max_tokens=9)
    lines = read_prompts(
        written(
            tmp_path,
            {"messages": said("a"), "sampling": {"temperature": 1.5}, "stop": ["x"]},
            {"messages": [{"role": "system", "content": "own"}, *said("b")], "draft": False},
            {"prompt": "raw", "seed": 8},
        )
    )
    first, second, third = [line.request(base, Around("all")) for line in lines]
    assert first.messages == (Message("system", "all"), Message("user", "a"))
    assert first.sampling == Sampling(temperature=1.5, top_k=7)
    assert (first.seed, first.max_tokens, first.stop) == (3, 9, ("x",))
    assert second.messages[0] == Message("system", "own")
    assert not second.draft
    assert (third.prompt, third.messages, third.seed) == ("raw", (), 8)


def test_braces_in_a_file_of_prompts_are_text(tmp_path: Path) -> None:
    (first, second) = read_prompts(written(tmp_path, "Explain this:", '{"a": 1}'))
    request = second.request(ReplyRequest(), Around())
    assert not first.is_json
    assert request.messages == (Message("user", '{"a": 1}'),)
