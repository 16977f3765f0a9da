"""Divides the text of a reply into thinking, answer and calls of tools while it is streamed.

No part of a marker ever shows as text: the end of a text that may begin one is held back until that
is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.events import ReplyFormat
from localspec.grammar.tool_families import Tool
from localspec.serve.replies.reasoning import ThinkingSplitter
from localspec.serve.replies.reply_parts import Content, Part
from localspec.serve.replies.tools import CallSplitter, family


class ReplyParser:
    """Takes the text of one reply in pieces of any size; their borders change nothing."""

    def __init__(
        self,
        form: ReplyFormat,
        tools: Sequence[Tool] = (),
        *,
        prefix: str = "call_",
        reasoning: bool = True,
    ) -> None:
        """``form`` is the first event of the reply, ``tools`` are those of the request, ``prefix``
        is that of the ids of calls. Without ``reasoning`` the thinking stays in the answer, markers
        included.
        """
        self._thinking = ThinkingSplitter(form) if reasoning else None
        self._calls = None
        if form.tools is not None and tools:
            self._calls = CallSplitter(family(form.tools), tools, prefix)

    @property
    def thinking(self) -> bool:
        """Whether the text so far ends inside the thinking."""
        return self._thinking is not None and self._thinking.thinking

    def feed(self, text: str) -> list[Part]:
        """The parts that are known with this text."""
        parts: list[Part] = [Content(text)] if text else []
        return self._called(parts if self._thinking is None else self._thinking.feed(text))

    def finish(self, *, cut: bool = False) -> list[Part]:
        """The rest, once no text follows. Where the reply was ``cut``, the beginning of a marker at
        its end belongs to no part.
        """
        found = self._called([] if self._thinking is None else self._thinking.finish(cut=cut))
        return found if self._calls is None else [*found, *self._calls.finish(cut=cut)]

    def _called(self, parts: Sequence[Part]) -> list[Part]:
        if self._calls is None:
            return list(parts)
        found: list[Part] = []
        for part in parts:
            found += self._calls.feed(part.text) if isinstance(part, Content) else [part]
        return found
