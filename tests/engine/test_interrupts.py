"""Interrupts that nobody waits for leave nothing behind."""

import io
import json
from pathlib import Path

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


class Broken(Runtime):
    """A defect ends what computes."""

    def deliver(self, request, mailbox, interrupt):
        self.failed = True
        mailbox.fail(ZeroDivisionError("a defect"))

    def close(self):
        pass


def test_an_engine_that_cannot_compute_any_more_ends():
    """The next request then gets another one."""
    outbox = Outbox(io.BytesIO())
    engine = EngineWorker(outbox, lambda *_: Broken(), Path("log"))
    for line in [*commands()][:2]:
        engine._take(line)
    engine.run()
    outbox.close()
