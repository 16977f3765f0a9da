"""Divides the events of a reply into its parts: thinking, answer and calls of tools."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.events import Finished, ReplyEvent, ReplyFormat, Token
from localspec.grammar.call_splitter import CallSplitter, held_back
from localspec.grammar.reply_parts import CallBegin, CallEnd, Content, Part, Reasoning
from localspec.grammar.tool_families import FAMILIES, Tool


def _first_of(text: str, markers: Sequence[str]) -> tuple[int, int]:
    """Where the first of the markers begins, and its length: the longest one that begins there;
    (-1, 0) if there is none.
    """
    found = [(at, -len(m)) for m in markers if (at := text.find(m)) >= 0]
    if not found:
        return -1, 0
    at, length = min(found)
    return at, -length


class ThinkingSplitter:
    """Takes the text of a reply in pieces. White space around the thinking belongs to no part."""

    def __init__(self, form: ReplyFormat) -> None:
        self._begin, *self._ends = form.thinking or ("",)
        self._held = ""
        self._state = "thinking" if form.thinks else "start" if self._begin else "answer"
        self._trim = form.thinks
        """Whether white space is left out, for what comes next begins a part."""

    @property
    def thinking(self) -> bool:
        """Whether the text so far ends inside the thinking."""
        return self._state == "thinking"

    @property
    def waiting(self) -> int:
        """Characters at the end of the text so far of which it is not known what they are."""
        return len(self._held)

    def feed(self, text: str) -> list[Part]:
        """The parts that are known with this text."""
        self._held += text
        found: list[Part] = []
        if self._state == "start":
            self._start()
        if self._state == "thinking":
            found += self._thinking()
        if self._state == "answer":
            found += self._answer()
        return found

    def finish(self, *, cut: bool = False) -> list[Part]:
        """The rest, once no text follows. Where the reply was ``cut``, the beginning of a marker
        belongs to no part.
        """
        thinking, rest = self._state == "thinking", self._held
        self._held = ""
        if cut:
            waited_for = self._ends if thinking else (self._begin, *self._ends)
            rest = rest[: len(rest) - held_back(rest, *waited_for)]
        if thinking:
            rest = rest.strip() if self._trim else rest.rstrip()
            return [Reasoning(rest)] if rest else []
        if self._trim:
            rest = rest.lstrip()
        return [Content(rest)] if rest else []

    def _start(self) -> None:
        """Find out whether the reply begins with thinking."""
        said = self._held.lstrip()
        for marker in (self._begin, *sorted(self._ends, key=len, reverse=True)):
            if said.startswith(marker):
                self._held = said[len(marker) :]
                self._state = "thinking" if marker == self._begin else "answer"
                self._trim = True
                return
        if not any(marker.startswith(said) for marker in (self._begin, *self._ends)):
            self._state = "answer"

    def _thinking(self) -> list[Part]:
        if self._trim:
            self._held = self._held.lstrip()
            self._trim = not self._held
        at, length = _first_of(self._held, self._ends)
        if at >= 0:
            said, self._held = self._held[:at].rstrip(), self._held[at + length :]
            self._state, self._trim = "answer", True
        else:
            sure = self._held[: len(self._held) - held_back(self._held, *self._ends)]
            said = sure.rstrip()  # the thinking may end here
            self._held = self._held[len(said) :]
        return [Reasoning(said)] if said else []

    def _answer(self) -> list[Part]:
        said, self._held = self._held, ""
        if self._trim:
            said = said.lstrip()
            self._trim = not said
        return [Content(said)] if said else []


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
        included; what resembles a call in it is none.
        """
        self._thinking = ThinkingSplitter(form)
        self._reasoning = reasoning
        self._unread = ""
        """Text that no part has yet, where the thinking stays as it is."""
        self._calls = None
        if form.tools is not None and tools:
            self._calls = CallSplitter(FAMILIES[form.tools], tools, prefix)

    @property
    def thinking(self) -> bool:
        """Whether the text so far ends inside the thinking."""
        return self._thinking.thinking

    def may_call(self, text: str) -> bool:
        """Whether a call may begin with this text, or goes on."""
        return self._calls is not None and self._calls.may_call(text)

    def feed(self, text: str) -> list[Part]:
        """The parts that are known with this text."""
        return self._called(self._as_said(text, self._thinking.feed(text)))

    def finish(self, *, cut: bool = False) -> list[Part]:
        """The rest, once no text follows. Where the reply was ``cut``, the beginning of a marker at
        its end belongs to no part, unless the thinking stays in the answer.
        """
        left = self._thinking.finish(cut=cut and self._reasoning)
        found = self._called(self._as_said("", left))
        return found if self._calls is None else [*found, *self._calls.finish(cut=cut)]

    def _as_said(self, text: str, parts: list[Part]) -> list[Part]:
        """The parts that are known with this text; the thinking as it was said, with its markers
        and the white space around it, where it stays in the answer.
        """
        if self._reasoning:
            return parts
        said = self._unread + text
        known = len(said) - self._thinking.waiting
        self._unread = said[known:]
        answer = [part for part in parts if isinstance(part, Content)]
        thought = said[: known - sum(len(part.text) for part in answer)]
        return [Reasoning(thought), *answer] if thought else list(answer)

    def _called(self, parts: Sequence[Part]) -> list[Part]:
        found: list[Part] = []
        for part in parts:
            if isinstance(part, Content) and self._calls is not None:
                found += self._calls.feed(part.text)
            elif isinstance(part, Reasoning) and not self._reasoning:
                found.append(Content(part.text))
            else:
                found.append(part)
        return found


class ReplyReader:
    """Reads one reply."""

    def __init__(
        self, tools: Sequence[Tool] = (), *, prefix: str = "call_", reasoning: bool = True
    ) -> None:
        """The arguments of `ReplyParser`."""
        self._tools = tuple(tools)
        self._prefix = prefix
        self._reasoning = reasoning
        self._parser = self._parser_of(ReplyFormat())
        self._shown = 0
        self.called = False
        """Whether the reply calls tools."""
        self.cut = False
        """Whether it ends inside of a call."""
        self.reasoning_tokens = 0
        """Tokens of the thinking so far; those of its markers count where they end."""

    def _parser_of(self, form: ReplyFormat) -> ReplyParser:
        return ReplyParser(form, self._tools, prefix=self._prefix, reasoning=self._reasoning)

    @property
    def thinking(self) -> bool:
        """Whether the reply so far ends inside the thinking."""
        return self._parser.thinking

    def may_call(self, events: Sequence[ReplyEvent]) -> bool:
        """Whether the first call may begin with the next events."""
        said = "".join(event.text for event in events if isinstance(event, Token))
        return not self.called and self._parser.may_call(said)

    def parts(self, events: Sequence[ReplyEvent]) -> list[Part]:
        """The parts that the next events add."""
        found: list[Part] = []
        for event in events:
            match event:
                case ReplyFormat():
                    self._parser = self._parser_of(event)
                case Token():
                    self._shown += len(event.text)
                    parts = self._parser.feed(event.text)
                    self.reasoning_tokens += self._parser.thinking
                    found += parts
                case Finished(reply):
                    found += self._parser.feed(reply.text[self._shown :])
                    found += self._parser.finish(cut=reply.finish_reason != "stop")
                case _:
                    pass
        self.called = self.called or any(isinstance(part, CallBegin) for part in found)
        self.cut = any(isinstance(part, CallEnd) and not part.complete for part in found)
        return found
