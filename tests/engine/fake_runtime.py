"""A runtime for the real engine process that needs no model: it answers by script."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from localspec.core.errors import ContextError, Interrupted, LocalspecError, ModelNotFoundError
from localspec.core.events import (
    Finished,
    Loading,
    ModelInfo,
    Notice,
    Reading,
    Reply,
    Round,
    Speculation,
    Stats,
    Token,
)
from localspec.core.values import Origin

ON = Speculation("on")
INFO = ModelInfo("t.gguf", "d.gguf", "cpu", 2048, "fake", 1, 1, 1, ON)


class FakeRuntime:
    """Says the last message back word by word; some messages are orders."""

    failed = False

    def __init__(self):
        self.info = INFO

    def deliver(self, request, mailbox, interrupt):
        def run():
            try:
                for event in self.submit(request, interrupt):
                    mailbox.put([event])
            except (LocalspecError, KeyError) as error:
                mailbox.fail(error)

        threading.Thread(target=run, daemon=True).start()

    def submit(self, request, interrupt):
        text, seed = request.messages[-1].content, request.seed
        print("this goes to the log, not to the protocol")  # noqa: T201 - that is the test
        os.write(1, b"and native code prints as well\n")
        yield Reading(2, 4, 0)
        if text == "too long":
            raise ContextError("prompt of 9 tokens, context of 4")
        if text == "bug":
            raise KeyError("an honest\nbug")
        if text == "abort":
            os.abort()
        if text == "garble":
            os.write(_protocol_fd(), b"\xff\xfe{]\n")
        yield Notice("listen")
        words = text.split(" ")
        tokens, reason = [], "stop"
        for i in range(10**9 if text == "forever" else len(words)):
            if interrupt.is_set():
                reason = "interrupt"
                break
            word = words[i % len(words)] + " "
            tokens.append(word)
            yield Token(i, word, Origin.ACCEPTED if i % 2 else Origin.CORRECTED, "model")
            yield Round(4, 2, 1, 1, 0.001, 0.002, 0.003, "model", i, ON)
            if text == "forever":
                time.sleep(0.001)
        stats = Stats(4, 0, len(tokens), 1, 4, 2, 1, (0.5,), {}, 0.1, 0.1, 0.0, 0.1, ON)
        ids = tuple(range(len(tokens)))
        origins = (Origin.PLAIN,) * len(tokens)
        yield Finished(Reply("".join(tokens), ids, origins, reason, stats, seed or 0))

    def tokenize(self, request, *, special, bos, interrupt):
        print(f"splits {request.prompt}", flush=True)  # noqa: T201 - seen in the log
        while not interrupt.is_set():
            time.sleep(0.001)
        time.sleep(0.05)
        print("split no more", flush=True)  # noqa: T201 - seen in the log
        raise Interrupted("nobody waits for it")

    def rest(self, cancelled):
        print("rested", flush=True)  # noqa: T201 - seen in the log

    def close(self):
        print("closed by order")  # noqa: T201 - seen in the log


def _protocol_fd():
    """The descriptor the engine writes on: the only pipe open for writing."""
    for fd in range(3, 20):
        try:
            link = str(Path(f"/proc/self/fd/{fd}").readlink())
        except OSError:
            continue
        if link.startswith("pipe:") and os.get_blocking(fd):
            import fcntl

            if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_WRONLY:
                return fd
    raise AssertionError


def create(options, on_event, cancelled):
    """The factory given to the child."""
    on_event(Loading("fake", 0.5))
    on_event(Loading("fake", 1.0))
    model = options.get("model")
    if model == "missing":
        raise ModelNotFoundError("no model 'missing'; see `localspec models`")
    if model == "slow":
        time.sleep(600)  # a load in native code asks nobody
    if model == "dies":
        sys.stderr.write("about to die\n")
        os._exit(3)
    return FakeRuntime()
