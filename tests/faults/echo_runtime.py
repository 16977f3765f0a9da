"""A runtime for the engine process that needs no model: it says the last message back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from localspec.core.emitted import Origin
from localspec.core.errors import UsageError
from localspec.core.events import (
    Examination,
    Finished,
    Loading,
    ModelInfo,
    Reply,
    ReplyEvent,
    Speculation,
    Stats,
    Token,
)
from localspec.core.interrupt import Interrupt
from localspec.core.reply_request import ReplyRequest, TakesEvents

_ON = Speculation("on")


class Echo:
    """One word a token, until it is interrupted."""

    failed = False

    info = ModelInfo("t.gguf", None, "cpu", 2048, "echo", 1, 1, 1, _ON)

    def deliver(
        self, request: ReplyRequest, mailbox: TakesEvents, interrupt: Interrupt | None = None
    ) -> None:
        """The words of the last message."""
        try:
            mailbox.put([*self.answer(request, interrupt or Interrupt())])
        except UsageError as error:
            mailbox.fail(error)

    def answer(self, request: ReplyRequest, interrupt: Interrupt) -> Iterator[ReplyEvent]:
        """The events of a reply."""
        if not request.messages:
            raise UsageError("there is no message to answer")
        words = request.messages[-1].content.split(" ")[:50]
        for n, word in enumerate(words):
            if interrupt.is_set():
                break
            yield Token(n, word + " ", Origin.PLAIN, None)
        text = "".join(word + " " for word in words)
        stats = Stats(1, 0, len(words), 1, 0, 0, 0, (), {}, 0.1, 0.1, 0.0, 0.1, speculation=_ON)
        yield Finished(Reply(text, tuple(range(len(words))), (), "stop", stats, 1))

    def examine(self, *_: Any, **__: Any) -> Examination:
        """Nothing is known of any token."""
        raise UsageError("there is nothing to examine")

    def rest(self, cancelled: Callable[[], bool]) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is held."""


def create(
    options: dict[str, Any], on_event: Callable[[Loading], None], cancelled: Callable[[], bool]
) -> Echo:
    """Open it."""
    return Echo()
