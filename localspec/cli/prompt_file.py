"""A file of prompts for ``run --parallel``: one a line, or JSON lines with the fields of a request.

A file is of JSON lines if its first line is a JSON object; else every line is a prompt.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from localspec.cli.output import decode, lines_of, read_within, require_text
from localspec.core import codec
from localspec.core.events import Message
from localspec.core.reply_request import ReplyRequest
from localspec.errors import LocalspecError, UsageError


@dataclass(frozen=True, slots=True)
class PromptLine:
    """A line with a request."""

    number: int
    """In the file, from 1."""
    text: str
    is_json: bool

    def request(self, base: ReplyRequest, *, system: str | None, raw: bool) -> ReplyRequest:
        """The request of this line: ``base`` with what the line says.

        Raises:
            UsageError: it is none; the message names the line.
        """
        try:
            if self.is_json:
                return self._from_json(base, system)
            text = require_text(self.text)
            if raw:
                return dataclasses.replace(base, prompt=text)
            return dataclasses.replace(base, messages=(*_about(system), Message("user", text)))
        except json.JSONDecodeError as error:
            raise UsageError(
                f"line {self.number}: not a JSON object, as on the first line ({error.msg})"
            ) from None
        except (codec.CodecError, RecursionError, LocalspecError) as error:
            raise UsageError(f"line {self.number}: {error}") from None

    def _from_json(self, base: ReplyRequest, system: str | None) -> ReplyRequest:
        data = json.loads(self.text)
        if not isinstance(data, dict):
            raise UsageError("expected a JSON object, as on the first line")
        sampling = data.get("sampling", {})
        if isinstance(sampling, dict):
            data["sampling"] = {**codec.encode(base.sampling), **sampling}
        request = codec.decode(ReplyRequest, {**codec.encode(base), **data}, "request")
        if request.prompt is not None:
            require_text(request.prompt)
        elif request.prompt_tokens is not None:
            pass
        elif not request.messages:
            raise UsageError("neither messages nor a prompt")
        elif request.messages[0].role != "system":
            messages = (*_about(system), *request.messages)
            request = dataclasses.replace(request, messages=messages)
        return request


def _about(system: str | None) -> tuple[Message, ...]:
    return () if system is None else (Message("system", system),)


def read_prompts(place: str) -> list[PromptLine]:
    """The lines of a file, or of stdin for "-", that are not empty.

    Raises:
        UsageError: it cannot be read, is too large or no UTF-8, or has no line with text.
    """
    if place == "-":
        text = decode(read_within(sys.stdin.buffer, "stdin"), "stdin")
    else:
        try:
            with Path(place).open("rb") as file:
                text = decode(read_within(file, place), place)
        except OSError as error:
            raise UsageError(f"{place} cannot be read: {error.strerror}") from None
    lines = [(i, line) for i, line in enumerate(lines_of(text), 1) if line.strip()]
    if not lines:
        raise UsageError(f"{'stdin' if place == '-' else place} has no line with a prompt")
    is_json = _is_object(lines[0][1])
    return [PromptLine(number, line, is_json) for number, line in lines]


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


__all__ = ["PromptLine", "read_prompts"]
