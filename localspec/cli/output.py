"""Reading prompts and writing replies on a plain terminal or a pipe.

All that the command line shows is shown by the functions of this module, which lead through
`localspec.core.safe_text`; a test forbids any other way.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from localspec.core.safe_text import escape_json, safe_line, safe_text
from localspec.errors import UsageError
from localspec.processes import activity

if TYPE_CHECKING:
    from localspec.core.events import Stats


LARGEST_TEXT = 16 << 20
"""Bytes of a prompt, or of a file of prompts."""


class ReaderGoneError(Exception):
    """Whoever read stdout has seen enough.

    Not a BrokenPipeError: click would make an exit of it before we see it.
    """


def read_stdin() -> str:
    """All of stdin.

    Raises:
        UsageError: it is not UTF-8, or larger than any context.
    """
    return decode(read_within(sys.stdin.buffer, "stdin"), "stdin")


def read_within(file: BinaryIO, place: str) -> bytes:
    """The bytes of a text that a model is to read.

    Raises:
        UsageError: there are more than any context holds.
    """
    raw = file.read(LARGEST_TEXT + 1)
    if len(raw) > LARGEST_TEXT:
        raise UsageError(f"{place} is larger than {LARGEST_TEXT >> 20} MB; no context holds that")
    return raw


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


def write(text: str) -> None:
    """To stdout, at once; what a narrow encoding lacks is replaced.

    A model may emit anything, and files may hold anything: a terminal gets the text through
    `safe_text`. A pipe gets it as it is.
    """
    if not text:
        return
    if sys.stdout.isatty():
        text = safe_text(text)
        activity.line_open(not text.endswith("\n"))
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.buffer.write(text.encode(encoding, "replace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise ReaderGoneError from None


def write_line(line: str) -> None:
    """One line to stdout: a terminal gets it without any line end that a name in it may hold."""
    write((safe_line(line) if sys.stdout.isatty() else line) + "\n")


def write_json(value: Any) -> None:
    """One line of JSON to stdout, whole in any encoding."""
    write(json_line(value))


def json_line(value: Any) -> str:
    """The line that `write_json` writes; a terminal finds no escape sequence in it."""
    unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    return escape_json(json.dumps(value, ensure_ascii=not unicode, allow_nan=False)) + "\n"


def tell(message: str) -> None:
    """A message of localspec, one line on stderr."""
    say(f"localspec: {message}")


def say(text: str = "", *, end: str = "\n", dim: bool = False) -> None:
    """A line for the user on stderr, which may be a terminal or a log."""
    line = safe_line(text)
    click.echo((click.style(line, dim=True) if dim else line) + end, err=True, nl=False)


def say_block(text: str) -> None:
    """Several lines for the user on stderr."""
    for line in text.splitlines():
        say(line)


def say_over(text: str) -> None:
    """Write a line of progress over the present line of stderr, if that is a terminal."""
    if sys.stderr.isatty():
        # For click, colour is any escape sequence: without it they would be taken out.
        click.echo(f"\r{safe_line(text)}\x1b[K", err=True, nl=False, color=True)


def draw_over(lines: Sequence[str], height: int) -> None:
    """Draw lines over the last ``height`` ones of a terminal on stderr, and clear what is behind
    them.
    """
    up = f"\x1b[{height}A" if height else ""
    text = "\n".join(safe_line(line) + "\x1b[K" for line in lines)
    # For click, colour is any escape sequence: without it they would be taken out.
    click.echo(f"{up}\r{text}", err=True, color=True)


def confirm(question: str, *, default: bool = False) -> bool:
    """Ask on stderr; yes or no."""
    return click.confirm(safe_line(question), default=default, err=True)


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
