"""The pictures of messages, as parts of prompts.

In place of a picture, the text of a prompt has a *mark*: a digest of the tokens that the picture
becomes, which are its rows and what the model wants around them. The mark goes through the chat
template as text does; when the text is split into tokens, those take its place. So whoever compares
texts compares pictures too, and the encoder that sees them.

A template is given much that others wrote: texts, tools, arguments. So a mark has a secret too as
long as it may meet them, and what a template wrote keeps only the marks that have it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
import weakref
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from localspec.core.errors import MediaError, QueueFullError
from localspec.core.events import Message
from localspec.core.interrupt import Cancelled
from localspec.core.picture import LEFT_OUT, MOST_PICTURES, UNSEEN, Decoded, Picture

_OPENS, _CLOSES = "\ufdd2", "\ufdd3"
"""Noncharacters: Unicode keeps them for uses inside a program."""
_MARK = re.compile(f"{_OPENS}([0-9a-f]{{32}}){_CLOSES}")
_KEPT_BYTES = 256 << 20
"""Bytes of pictures that are kept for later requests."""
_MOST_WAITING = 1 << 30
"""Bytes of pixels and samples of all requests that wait to be encoded; one request of 64 large
pictures has 768 MB.
"""
_KEPT_FILES = 4096
"""Files whose pixels are known."""
_SHOWN = "<image>"
_AT_A_TIME = 16
"""Pictures that are left out together."""

Tell = Callable[[str], None]
"""Is told in a line what takes long."""


class PicturePart(Protocol):
    """A picture as a part of a prompt."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """Rows, see `localspec.core.media_rows`, and the tokens around them."""
        ...

    @property
    def n_bytes(self) -> int:
        """Bytes of its rows, encoded."""
        ...

    @property
    def waiting_bytes(self) -> int:
        """Bytes of pixels or samples that it holds until it is encoded."""
        ...


class Encoder(Protocol):
    """Makes parts of prompts of pixels and samples; callable from any thread."""

    @property
    def rate(self) -> int | None:
        """Samples of a second that it hears; None: it hears nothing."""
        ...

    def tokenized(self, decoded: Decoded, cancelled: Cancelled) -> PicturePart:
        """The part for a picture or a sound.

        Raises:
            MediaError: it refuses the picture.
        """
        ...


class Sight(Protocol):
    """Loads the encoder of a model for pictures when it is first needed."""

    def encoder(self, tell: Tell, cancelled: Cancelled = ...) -> Encoder:
        """Its encoder, compiled and loaded now if it was not needed before.

        Raises:
            Interrupted: ``cancelled`` returned true.
            MediaError: the model cannot see; says what to load.
            LocalspecError: the encoder cannot be loaded.
        """
        ...


class Pictures:
    """Decodes the pictures of requests, and knows what stands for their marks."""

    def __init__(self, sight: Sight | None) -> None:
        """``sight`` None: the model cannot see."""
        self._sight = sight
        self._opens = _OPENS + secrets.token_hex(16)
        self._made = re.compile(f"{self._opens}([0-9a-f]{{32}}){_CLOSES}")
        self._lock = threading.Lock()
        self._marks: OrderedDict[bytes, str] = OrderedDict()
        """By the digest of the file, what was used last at the end."""
        self._parts: weakref.WeakValueDictionary[str, PicturePart] = weakref.WeakValueDictionary()
        """By mark; requests hold theirs."""
        self._kept: OrderedDict[str, PicturePart] = OrderedDict()
        """Those that later requests may have again, what was used last at the end."""

    def marked(
        self, messages: Sequence[Message], cancelled: Cancelled, tell: Tell
    ) -> tuple[tuple[Message, ...], tuple[object, ...]]:
        """The messages with marks in place of their pictures, for a template whose text has to be
        `settled`, and what has to be held until they are read.

        Raises:
            MediaError: a picture cannot be read, or the model cannot see.
            QueueFullError: those of all requests are too large together.
            Interrupted: ``cancelled`` returned true.
        """
        held: list[object] = []
        found: list[Message] = []
        left_out = _too_many(messages)
        for message in messages:
            text = without_marks(message.content)
            if not message.pictures:
                found.append(message if text is message.content else replace(message, content=text))
                continue
            parts, begun = list[str](), 0
            for picture in message.pictures:
                if message.role == "tool" and left_out > 0:
                    mark, left_out = LEFT_OUT, left_out - 1
                else:
                    mark, part = self._seen(message, picture, cancelled, tell)
                    held.append(part)
                parts += text[begun : picture.at], mark.replace(_OPENS, self._opens)
                begun = max(begun, picture.at)
            parts.append(text[begun:])
            found.append(replace(message, content="".join(parts), pictures=()))
        return tuple(found), tuple(held)

    def _seen(
        self, message: Message, picture: Picture, cancelled: Cancelled, tell: Tell
    ) -> tuple[str, PicturePart | None]:
        """The mark of a picture, and its part of the prompt. For a picture in a tool's result that
        cannot be seen: `UNSEEN`, and None.
        """
        try:
            return self._known(picture, cancelled, tell)
        except MediaError:
            if message.role != "tool":
                raise
            return UNSEEN, None

    def _known(self, picture: Picture, cancelled: Cancelled, tell: Tell) -> tuple[str, PicturePart]:
        """The mark and the part of a picture."""
        from localspec.media import decoding

        if self._sight is None:
            raise MediaError("this model cannot see pictures; choose one that does")
        encoder = self._sight.encoder(
            tell, cancelled
        )  # first: a model that cannot see decodes nothing
        data = decoding.file_of(picture)
        key = hashlib.sha256(data).digest()
        with self._lock:
            mark = self._marks.get(key)
            part = self._parts.get(mark) if mark is not None else None
            waiting = sum(part.waiting_bytes for part in list(self._parts.values()))
        if mark is None or part is None:
            if waiting > _MOST_WAITING:
                raise QueueFullError(
                    f"pictures and sounds of {waiting >> 20} MB, decoded, wait to be encoded, and "
                    f"{_MOST_WAITING >> 20} MB are the most: send fewer, or try again later"
                )
            name = decoding.called(picture)
            decoded = decoding.decoded(data, name, cancelled, rate=encoder.rate)
            part = encoder.tokenized(decoded, cancelled)
            mark = mark_of(part)
        with self._lock:
            self._marks[key], self._parts[mark], self._kept[mark] = mark, part, part
            self._marks.move_to_end(key)
            self._kept.move_to_end(mark)
            while len(self._marks) > _KEPT_FILES:
                self._marks.popitem(last=False)
            while sum(p.n_bytes + p.waiting_bytes for p in self._kept.values()) > _KEPT_BYTES:
                self._kept.popitem(last=False)
        return mark, part

    def settled(self, text: str) -> str:
        """What a template made of messages that are `marked`, with their marks and no others."""
        if _OPENS not in text and _CLOSES not in text:
            return text
        parts = self._made.split(text)
        parts[::2] = map(without_marks, parts[::2])
        parts[1::2] = (f"{_OPENS}{digest}{_CLOSES}" for digest in parts[1::2])
        return "".join(parts)

    def tokens(self, text: str, *, bos: bool, split: Callable[..., list[int]]) -> list[int]:
        """The tokens of a text with marks; ``split`` gives those of one without, and takes ``bos``
        by name.
        """
        if _OPENS not in text:
            return split(text, bos=bos)
        found: list[int] = []
        begun = 0
        for match in _MARK.finditer(text):
            with self._lock:
                part = self._parts.get(match[0])
            if part is None:
                continue  # of a text that nobody marked
            between = text[begun : match.start()]
            if between or (bos and not found):
                found += split(between, bos=bos and not found)
            found += part.tokens
            begun = match.end()
        if begun < len(text) or not found:
            found += split(text[begun:], bos=bos and not found)
        return found


def mark_of(part: PicturePart) -> str:
    """The mark of a picture, without a secret."""
    digest = hashlib.sha256(array("q", part.tokens).tobytes()).hexdigest()
    return f"{_OPENS}{digest[:32]}{_CLOSES}"


def _too_many(messages: Sequence[Message]) -> int:
    """Pictures of results of tools to be left out, the first ones: several at a time, since what
    was read of a prompt ends where it changes, but not the last one without need.
    """
    excess = sum(len(message.pictures) for message in messages) - MOST_PICTURES
    of_tools = sum(len(message.pictures) for message in messages if message.role == "tool")
    return max(excess, min(-(-excess // _AT_A_TIME) * _AT_A_TIME, of_tools - 1))


def without_marks(text: str) -> str:
    """The text with its noncharacters replaced, so that it marks nothing."""
    if _OPENS not in text and _CLOSES not in text:
        return text
    return text.replace(_OPENS, "\ufffd").replace(_CLOSES, "\ufffd")


def shown(text: str) -> str:
    """A text with marks as a reader should see it."""
    return _MARK.sub(_SHOWN, text) if _OPENS in text else text
