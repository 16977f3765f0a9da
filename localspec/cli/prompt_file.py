"""A file of prompts for ``run --parallel``: one a line, or JSON lines with the fields of a request.

A file is of JSON lines if its first line is a JSON object; else every line is a prompt.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from localspec.cli.images import asking, read_images
from localspec.cli.output import lines_of, read_file, read_stdin, require_text
from localspec.core import codec
from localspec.core.errors import LocalspecError, UsageError
from localspec.core.events import Message
from localspec.core.picture import Picture
from localspec.core.reply_request import ReplyRequest

_IMAGES = "images"
"""Key of a JSON line: files of pictures in front of its last message."""


@dataclass(frozen=True, slots=True)
class Around:
    """The texts before and behind the prompts of all lines."""

    system: str | None = None
    raw: bool = False
    """Without the chat template."""
    pictures: tuple[Picture, ...] = ()
    """In front of each prompt."""

    def messages(self, text: str) -> tuple[Message, ...]:
        """The conversation for a prompt."""
        return (*_about(self.system), asking(text, self.pictures))


@dataclass(frozen=True, slots=True)
class PromptLine:
    """A line with a request."""

    number: int
    """In the file, from 1."""
    text: str
    is_json: bool

    def request(self, base: ReplyRequest, around: Around) -> ReplyRequest:
        """The request of this line: ``base`` with what the line says.

        Raises:
            UsageError: it is none; the message names the line.
        """
        try:
            if self.is_json:
                return self._from_json(base, around)
            text = require_text(self.text)
            if around.raw:
                return dataclasses.replace(base, prompt=text)
            return dataclasses.replace(base, messages=around.messages(text))
        except json.JSONDecodeError as error:
            raise UsageError(
                f"line {self.number}: not a JSON object, as on the first line ({error.msg})"
            ) from None
        except (codec.CodecError, RecursionError, LocalspecError) as error:
            raise UsageError(f"line {self.number}: {error}") from None

    def _from_json(self, base: ReplyRequest, around: Around) -> ReplyRequest:
        data = json.loads(self.text)
        if not isinstance(data, dict):
            raise UsageError("expected a JSON object, as on the first line")
        pictures = (*around.pictures, *read_images(_files(data.pop(_IMAGES, []))))
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
            messages = (*_about(around.system), *request.messages)
            request = dataclasses.replace(request, messages=messages)
        return _with_pictures(request, pictures)


def _files(found: object) -> list[str]:
    if isinstance(found, list) and all(isinstance(file, str) for file in found):
        return found
    raise UsageError(f"{_IMAGES!r} must be a list of files")


def _with_pictures(request: ReplyRequest, pictures: tuple[Picture, ...]) -> ReplyRequest:
    """The request with pictures in front of its last message."""
    if not pictures:
        return request
    last = request.messages[-1] if request.messages else None
    if last is None or last.role != "user" or last.pictures:
        raise UsageError("pictures go in front of a last message of the user; there is none")
    messages = (*request.messages[:-1], asking(last.content, pictures))
    return dataclasses.replace(request, messages=messages)


def _about(system: str | None) -> tuple[Message, ...]:
    return () if system is None else (Message("system", system),)


def read_prompts(place: str) -> list[PromptLine]:
    """The lines of a file, or of stdin for "-", that are not empty.

    Raises:
        UsageError: it cannot be read, is too large or no UTF-8, or has no line with text.
    """
    text = read_stdin() if place == "-" else read_file(place)
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
