"""Reads calls of tools out of a reply while it is streamed.

A grammar makes the calls (`localspec.grammar.tools`), so their text has one form.
"""

from __future__ import annotations

import abc
import contextlib
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from localspec.grammar.reply_parts import CallArguments, CallBegin, CallEnd, Content, Part
from localspec.grammar.tool_families import Family, Tool, chosen_texts


class CallReader(abc.ABC):
    """Reads what follows the marker of the first call, in pieces. Text between calls, markers
    included, belongs to no part.
    """

    def __init__(self, prefix: str) -> None:
        """``prefix`` is that of the ids of calls."""
        self._prefix = prefix
        self._held = ""
        self._index = -1
        self._inside = False
        """Whether a call has begun and not ended."""

    @abc.abstractmethod
    def feed(self, text: str) -> list[Part]:
        """The parts that are known with this text."""

    def finish(self) -> list[Part]:
        """The end of a call that was cut; what is not known to be a call yet is left out."""
        return [CallEnd(self._index, complete=False)] if self._inside else []

    def _begin(self, name: str) -> CallBegin:
        self._index += 1
        self._inside = True
        return CallBegin(self._index, f"{self._prefix}{secrets.token_hex(12)}", name)

    def _end(self) -> CallEnd:
        self._inside = False
        return CallEnd(self._index)

    def _take(self, n: int) -> str:
        taken, self._held = self._held[:n], self._held[n:]
        return taken


_NEXT = re.compile(r'["\\{}\[\]]')


class _JSONScan:
    """Follows one object or array from its first bracket to its last."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.over = False
        """Whether the last bracket was read."""

    def feed(self, text: str) -> int:
        """Read a piece; how many of its characters belong to the object."""
        at = 0
        while at < len(text) and not self.over:
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = _NEXT.search(text, at)
            if found is None:
                return len(text)
            at = found.end()
            self._take(found[0])
        return at

    def _take(self, character: str) -> None:
        if self._in_string:
            self._escaped = character == "\\"
            self._in_string = character != '"'
        elif character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
            self.over = self._depth == 0


class ScannedCalls(CallReader):
    """Calls whose arguments stand in the reply as JSON."""

    def __init__(self, prefix: str, header: Callable[[str], tuple[str | None, str]]) -> None:
        """``header`` gives the name of the next call in a text, None where its header is not whole,
        and the rest of the text.
        """
        super().__init__(prefix)
        self._header = header
        self._scan: _JSONScan | None = None

    def feed(self, text: str) -> list[Part]:
        """See `CallReader.feed`."""
        self._held += text
        found: list[Part] = []
        while True:
            if self._scan is None:
                name, self._held = self._header(self._held)
                if name is None:
                    return found
                found.append(self._begin(name))
                self._scan = _JSONScan()
            n = self._scan.feed(self._held)
            if n:
                found.append(CallArguments(self._index, self._take(n)))
            if not self._scan.over:
                return found
            found.append(self._end())
            self._scan = None


_HEADER = re.compile(r'\{"name": "([^"]*)", "(?:arguments|parameters)": ')


def _in_object(text: str) -> tuple[str | None, str]:
    """The header of a call that is a JSON object of a name and arguments."""
    found = _HEADER.search(text)
    if found is None:
        return None, text[text.find("{") :] if "{" in text else ""
    return found[1], text[found.end() :]


def _before_arguments(text: str) -> tuple[str | None, str]:
    """The header of a call of a name, ``[ARGS]`` and arguments, each after ``[TOOL_CALLS]``."""
    name, marker, rest = text.partition("[ARGS]")
    return (name.rpartition("[TOOL_CALLS]")[2], rest) if marker else (None, text)


class TaggedCalls(CallReader):
    """Calls of Qwen3-Coder, whose parameters stand between tags: they are made JSON."""

    _CLOSE = "\n</parameter>\n"

    def __init__(self, prefix: str, tools: Sequence[Tool]) -> None:
        super().__init__(prefix)
        self._schemas: dict[str, Mapping[str, Any]] = {tool.name: tool.values for tool in tools}
        self._known: Mapping[str, Any] = {}
        self._first = True
        self._value: Mapping[str, Any] | None = None
        """Schema of the parameter whose value is being read."""

    def feed(self, text: str) -> list[Part]:
        """See `CallReader.feed`."""
        self._held += text
        found: list[Part] = []
        while (parts := self._step()) is not None:
            found += parts
        return found

    def _step(self) -> list[Part] | None:
        """The next parts; None where more text is needed."""
        if not self._inside:
            return self._function()
        return self._parameter() if self._value is None else self._value_of(self._value)

    def _function(self) -> list[Part] | None:
        found = re.search(r"<function=([^<>]*+)>\n", self._held)
        if found is None:
            return None
        self._take(found.end())
        self._known, self._first = self._schemas.get(found[1], {}), True
        return [self._begin(found[1])]

    def _parameter(self) -> list[Part] | None:
        if self._held.startswith("</function>"):
            self._take(len("</function>"))
            return [CallArguments(self._index, "{}" if self._first else "}"), self._end()]
        found = re.match(r"<parameter=(.*?)>\n", self._held)
        if found is None:
            return None
        self._take(found.end())
        self._value = self._known.get(found[1], {})
        begin = "{" if self._first else ", "
        self._first = False
        quote = '"' if self._is_text(self._value) else ""
        name = json.dumps(found[1], ensure_ascii=False)
        return [CallArguments(self._index, f"{begin}{name}: {quote}")]

    @staticmethod
    def _is_text(schema: Any) -> bool:
        return isinstance(schema, Mapping) and schema.get("type") == "string"

    def _value_of(self, schema: Mapping[str, Any]) -> list[Part] | None:
        at = self._held.find(self._CLOSE)
        if at >= 0:
            written = self._take(at)
            self._take(len(self._CLOSE))
            self._value = None
            if self._is_text(schema):
                text = _inside_quotes(written) + '"'
            else:
                text = parameter_json(written, schema)
            return [CallArguments(self._index, text)]
        sure = len(self._held) - held_back(self._held, self._CLOSE)
        if not self._is_text(schema) or not sure:
            return None
        return [CallArguments(self._index, _inside_quotes(self._take(sure)))]


def _inside_quotes(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


class CallSplitter:
    """Separates the calls of a reply from the text before them. White space between the two belongs
    to no part.
    """

    def __init__(self, family: Family, tools: Sequence[Tool], prefix: str) -> None:
        """``tools`` are those of the request."""
        self._family = family
        self._reader = _reader(family, tools, prefix)
        self._markers = [family.open] if family.open else []
        self._held = ""
        self._blank = 0
        """White space with which the held text begins: nothing more is to be looked for in it."""
        self._state = "text" if family.open else "start"

    def feed(self, text: str) -> list[Part]:
        """The parts that are known with this text."""
        if self._state == "calls":
            return self._reader.feed(text)
        self._held += text
        if self._state == "start":
            self._start()
            if self._state == "start":
                return []
        found: list[Part] = []
        if self._state == "text":
            found += self._text()
        if self._state == "calls":
            rest, self._held = self._held, ""
            found += self._reader.feed(rest)
        return found

    def may_call(self, text: str) -> bool:
        """Whether a call may begin with this text, or goes on."""
        if self._state == "text":
            return bool(self._markers) and self._family.open in self._held + text
        return True

    def finish(self, *, cut: bool = False) -> list[Part]:
        """The rest, once no text follows. Where the reply was ``cut``, the beginning of a marker
        belongs to no part.
        """
        if self._state == "calls":
            return self._reader.finish()
        rest, self._held = self._held, ""
        if self._state == "start":
            tag = self._family.markers[0]
            rest = rest.removeprefix(tag)
            rest = "" if cut and tag.startswith(rest) else rest
        elif cut:
            rest = rest[: len(rest) - held_back(rest, *self._markers)]
        return [Content(rest)] if rest else []

    def _start(self) -> None:
        """Find out whether a reply without markers begins with a call."""
        tag = self._family.markers[0]
        bare = self._held.removeprefix(tag)
        if bare.startswith("{"):
            self._state, self._held = "calls", bare
        elif not tag.startswith(self._held) and bare:
            self._state = "text"

    def _text(self) -> list[Part]:
        if not self._markers:
            said, self._held = self._held, ""
            return [Content(said)] if said else []
        at = self._held.find(self._family.open, self._blank)
        if at >= 0:
            said = self._held[:at].rstrip()
            self._held = self._held[at:]
            self._state = "calls"
        else:
            new = self._held[self._blank :]
            sure = new[: len(new) - held_back(new, *self._markers)]
            word = sure.rstrip()  # a call may follow
            said = self._held[: self._blank + len(word)] if word else ""
            self._blank += len(sure) - len(said)
            self._held = self._held[len(said) :]
        return [Content(said)] if said else []


def _reader(family: Family, tools: Sequence[Tool], prefix: str) -> CallReader:
    match family.name:
        case "qwen3-coder":
            return TaggedCalls(prefix, tools)
        case "mistral-args":
            return ScannedCalls(prefix, _before_arguments)
    return ScannedCalls(prefix, _in_object)


def held_back(text: str, *markers: str) -> int:
    """Characters at the end of ``text`` that may be the beginning of a marker: not to be shown
    before it is known whether they are.
    """
    longest = min(len(text), max(map(len, markers), default=1) - 1)
    for n in range(longest, 0, -1):
        if any(marker.startswith(text[-n:]) for marker in markers):
            return n
    return 0


def parameter_json(written: str, schema: Mapping[str, Any]) -> str:
    """A parameter of that schema as JSON. Qwen3-Coder writes texts without quotes, and all else in
    JSON, which stays as it was written, digit by digit; what is neither is a text.
    """
    if schema.get("type") != "string" and chosen_texts(schema) is None:
        # Else it is none, or no value of Python's: thousands of digits, a thousand brackets.
        with contextlib.suppress(ValueError, RecursionError):
            json.loads(written, parse_constant=_refused)
            return written.strip()
    return json.dumps(written, ensure_ascii=False)


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
