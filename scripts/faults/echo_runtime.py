"""A runtime for the engine process that needs no model: it says the last message back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from localspec.core.events import (
    Examination,
    Finished,
    Loading,
    Message,
    ModelInfo,
    Reply,
    ReplyEvent,
    Speculation,
    Stats,
    Token,
)
from localspec.core.origin import Origin
from localspec.errors import UsageError

_ON = Speculation("on")


class Echo:
    """One word a token, until it is interrupted."""

    info = ModelInfo("t.gguf", None, "cpu", 2048, "echo", 1, 1, 1, _ON)

    def __init__(self) -> None:
        self._stop = threading.Event()

    def reply(self, messages: Sequence[Message], **_: Any) -> Iterator[ReplyEvent]:
        """The words of the last message."""
        self._stop.clear()
        if not messages:
            raise UsageError("there is no message to answer")
        words = messages[-1].content.split(" ")[:50]
        for n, word in enumerate(words):
            if self._stop.is_set():
                break
            yield Token(n, word + " ", Origin.PLAIN, None)
        text = "".join(word + " " for word in words)
        stats = Stats(1, 0, len(words), 1, 0, 0, 0, (), {}, 0.1, 0.1, 0.0, 0.1, None, _ON)
        yield Finished(Reply(text, tuple(range(len(words))), (), "stop", stats, 1))

    def examine(self, *_: Any, **__: Any) -> Examination:
        """Nothing is known of any token."""
        raise UsageError("there is nothing to examine")

    def interrupt(self) -> None:
        """End the reply."""
        self._stop.set()

    def rest(self, cancelled: Callable[[], bool]) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is held."""


def create(
    options: dict[str, Any], on_event: Callable[[Loading], None], cancelled: Callable[[], bool]
) -> Echo:
    """Open it."""
    del options, on_event, cancelled
    return Echo()
