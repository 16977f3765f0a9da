"""Reading prompts and writing replies on a plain terminal or a pipe."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from localspec.core.characters import BIDI_CONTROLS, JOINERS
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.core.events import Stats


class ReaderGoneError(Exception):
    """Whoever read stdout has seen enough.

    Not a BrokenPipeError: click would make an exit of it before we see it.
    """


def read_stdin() -> str:
    """All of stdin.

    Raises:
        UsageError: it is not UTF-8.
    """
    return decode(sys.stdin.buffer.read(), "stdin")


def decode(raw: bytes, place: str) -> str:
    """Text from bytes.

    Raises:
        UsageError: they are not UTF-8; the message names the byte.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{place} is not valid UTF-8 (byte {error.start} is 0x{raw[error.start]:02x}); convert "
            "it, for example with iconv"
        ) from None


def require_text(text: str) -> str:
    """The prompt, if it is one.

    Raises:
        UsageError: nothing but space, or bytes that were not UTF-8.
    """
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise UsageError("the prompt is not valid UTF-8; convert it, for example with iconv")
    if not text.strip():
        raise UsageError("the prompt is empty; give some text, or - to read stdin")
    return text


def printable(text: str, also: str = "") -> str:
    """Without what a terminal would obey: escapes and other control characters."""
    also += JOINERS
    return "".join(c if c.isprintable() or c in also else "\ufffd" for c in text)


_OBEYED = {
    **dict.fromkeys((*range(32), *range(127, 160), *BIDI_CONTROLS), "\ufffd"),
    ord("\n"): "\n",
    ord("\t"): "\t",
    ord("\r"): None,  # it would write over what stands in the line
}


def write(text: str) -> None:
    """To stdout, at once; what a narrow encoding lacks is replaced.

    A model may emit anything, and files may hold anything: on a terminal control characters are
    replaced, all but tab and line end. A pipe gets the text as it is.
    """
    if not text:
        return
    if sys.stdout.isatty():
        text = text.translate(_OBEYED)
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.buffer.write(text.encode(encoding, "replace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise ReaderGoneError from None


def write_json(value: Any) -> None:
    """One line of JSON to stdout, whole in any encoding."""
    unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    write(json.dumps(value, ensure_ascii=not unicode, allow_nan=False) + "\n")


def summary(stats: Stats) -> str:
    """One line about a reply."""
    parts = [f"{stats.emitted} tokens", f"{stats.tokens_per_second:.0f} tok/s"]
    if stats.times_plain is not None:
        parts.append(f"{stats.times_plain:.1f}× plain")
    if stats.drafted:
        parts.append(f"accepted {stats.accepted}/{stats.verified} {stats.acceptance:.0%}")
        parts.append(f"{stats.tokens_per_round:.1f} tok/round")
    if stats.speculation.state != "on":
        parts.append(f"{stats.speculation.state}: {stats.speculation.reason}")
    return " · ".join(parts)
