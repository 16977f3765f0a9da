"""Interrupts that nobody waits for leave nothing behind."""

import io
import json
import threading
from pathlib import Path

import pytest

from localspec.core.errors import UsageError
from localspec.core.events import Finished, ModelInfo, Notice, Reply, Speculation, Stats
from localspec.engine.outbox import Outbox
from localspec.engine.worker import EngineWorker

ON = Speculation("on")
STATS = Stats(1, 0, 0, 1, 0, 0, 0, (), {}, 0.1, 0.1, 0.0, 0.1, ON)
REPLY = Reply("", (), (), "stop", STATS, 1)


class Runtime:
    """Answers with a notice."""

    failed = False

    info = ModelInfo("t.gguf", None, "cpu", 2048, "fake", 1, 0, 1, Speculation("on"))

    def deliver(self, request, mailbox, interrupt):
        mailbox.put([Notice(request.messages[-1].content)])
        mailbox.put([Finished(REPLY)])


def test_an_interrupt_after_the_end_of_its_reply_is_forgotten():
    outbox = Outbox(io.BytesIO())
    engine = EngineWorker(outbox, lambda *_: Runtime(), Path("log"))
    for line in commands():
        engine._take(line)
        while not engine._commands.empty():
            engine._execute(engine._commands.get())
        for thread in engine._threads():
            thread.join(60)
    outbox.close()
    assert not engine._interrupts


def commands():
    """Ten replies, each interrupted after its end, and as many interrupts of no reply."""
    yield json.dumps({"type": "open", "options": {}}).encode()
    for i in range(10):
        said = [{"role": "user", "content": "one two"}]
        yield json.dumps({"type": "reply", "id": i, "request": {"messages": said}}).encode()
        yield json.dumps({"type": "interrupt", "id": i}).encode()
        yield json.dumps({"type": "interrupt", "id": 1000 + i}).encode()


@pytest.mark.parametrize("kind", ["tokenize", "examine", "adapter"])
def test_an_engine_without_a_thread_for_a_question_says_so_and_goes_on(kind, monkeypatch):
    stream = io.BytesIO()
    outbox = Outbox(stream)
    engine = EngineWorker(outbox, lambda *_: Runtime(), Path("log"))
    for line in lines("open", kind):
        engine._take(line)
    engine._execute(engine._commands.get())

    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    engine._execute(engine._commands.get())
    monkeypatch.undo()
    outbox.close()
    assert not engine._interrupts
    assert not engine._threads()
    said = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(one["type"], one.get("id")) for one in said] == [("opened", None), ("failed", 1)]


class Broken(Runtime):
    """A defect ends what computes, once two requests are there; one waits."""

    def __init__(self, defect):
        self.defect, self.waiting = defect, []

    def deliver(self, request, mailbox, interrupt):
        interrupt.watch(Waiting(mailbox))
        self.waiting.append(mailbox)
        if len(self.waiting) == 2:
            self.failed = True
            for one in self.waiting:
                one.fail(self.defect)

    def close(self):
        pass


class Waiting:
    """A reply that ends at once when it is interrupted, as one that still waits does."""

    def __init__(self, mailbox):
        self.mailbox = mailbox

    def interrupted(self):
        self.mailbox.put([Finished(REPLY)])


def lines(*kinds):
    said = [{"role": "user", "content": "one two"}]
    for number, kind in enumerate(kinds):
        more = {"options": {}} if kind == "open" else {}
        if kind in {"reply", "examine", "tokenize"}:
            more = {"id": number, "request": {"messages": said}}
        if kind == "examine":
            more["tokens"] = [1]
        if kind == "adapter":
            more = {"id": number, "name": "a", "path": "a.gguf"}
        yield json.dumps({"type": kind} | more).encode()


@pytest.mark.parametrize("defect", [ZeroDivisionError("a defect"), UsageError("closed")])
def test_an_engine_that_cannot_compute_any_more_ends(defect):
    """The next request then gets another one, nobody waits for ever, and none is told that the
    engine goes on.
    """
    stream = io.BytesIO()
    outbox = Outbox(stream)
    engine = EngineWorker(outbox, lambda *_: Broken(defect), Path("log"))
    for line in lines("open", "reply", "reply"):
        engine._take(line)
    ends(engine)
    outbox.close()
    failed = [
        one for line in stream.getvalue().splitlines() if (one := json.loads(line)).get("error")
    ]
    assert len(failed) == 2
    assert not any(one["error"] == "DefectError" for one in failed)


def test_an_engine_that_is_closed_ends_what_waits():
    outbox = Outbox(io.BytesIO())
    engine = EngineWorker(outbox, lambda *_: Broken(None), Path("log"))
    for line in lines("open", "reply"):
        engine._take(line)
        engine._execute(engine._commands.get())
    engine._take(next(lines("close")))
    ends(engine)
    assert not engine._interrupts
    outbox.close()


def ends(engine):
    """It ends by itself."""
    thread = threading.Thread(target=engine.run, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
