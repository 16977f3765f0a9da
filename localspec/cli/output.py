"""Reading prompts and writing replies on a plain terminal or a pipe.

All output of the command line goes through the functions of this module, and so through
`localspec.core.safe_text`; a test forbids any other way.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from localspec.core.errors import UsageError
from localspec.core.processes import activity
from localspec.core.safe_text import begun, escape_json, safe_line, safe_text
from localspec.core.units import speed

if TYPE_CHECKING:
    from localspec.core.events import Stats


LARGEST_TEXT = 16 << 20
"""Bytes of a prompt, or of a file of prompts."""
_LINE_END = re.compile(r"\r\n|\n|\r")


class ReaderGoneError(Exception):
    """The reader of stdout closed the pipe.

    Not a BrokenPipeError: click would make an exit of it before we see it.
    """


def in_terminal() -> bool:
    """Whether the user sits at all three standard streams."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def stdin() -> BinaryIO:
    """The bytes of stdin, all of them."""
    return sys.stdin.buffer


def read_stdin() -> str:
    """All of stdin.

    Raises:
        UsageError: it is not UTF-8, or larger than any context.
    """
    return _read(stdin(), "stdin")


def is_unread() -> bool:
    """Whether there are bytes in stdin; waits for none."""
    import fcntl
    import termios

    try:
        if sys.stdin.isatty():
            return False
        return any(fcntl.ioctl(sys.stdin.fileno(), termios.FIONREAD, bytes(4)))
    except OSError:  # as of the null device
        return False


def stdin_line() -> bytes:
    """The next line of stdin with its end; empty behind the last one.

    Raises:
        UsageError: it is larger than any context.
    """
    line = stdin().readline(LARGEST_TEXT + 1)
    if len(line) > LARGEST_TEXT:
        raise UsageError(f"a line of stdin is larger than {LARGEST_TEXT >> 20} MB")
    return line


def read_file(place: str) -> str:
    """The text of a file that a model is to read.

    Raises:
        UsageError: it cannot be read, is not UTF-8, or is larger than any context.
    """
    from pathlib import Path  # here: help does without

    try:
        with Path(place).open("rb") as file:
            return _read(file, place)
    except OSError as error:
        raise UsageError(f"{place} cannot be read: {error.strerror}") from None


def _read(file: BinaryIO, place: str) -> str:
    raw = file.read(LARGEST_TEXT + 1)
    if len(raw) > LARGEST_TEXT:
        raise UsageError(
            f"{place} is larger than {LARGEST_TEXT >> 20} MB, which no context can hold"
        )
    return decode(raw, place)


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


def lines_of(text: str) -> list[str]:
    """The lines of a file of prompts, without a byte order mark. Unlike those of `str.splitlines`
    they may hold all that JSON and prompts may, as U+2028.
    """
    return _LINE_END.split(text.removeprefix("\ufeff"))


def require_text(text: str) -> str:
    """Check a prompt and return it.

    Raises:
        UsageError: it is empty, or had bytes that are not UTF-8.
    """
    if not require_utf8(text, "the prompt").strip():
        raise UsageError("the prompt is empty; give some text, or - to read stdin")
    return text


def require_utf8(text: str, place: str) -> str:
    """Check a text of the command line that a model is to read or write, and return it.

    Raises:
        UsageError: it had bytes that are not UTF-8.
    """
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise UsageError(f"{place} is not valid UTF-8; convert it, for example with iconv")
    return text


class _Written:
    """What was written to a terminal last."""

    begun = ""
    """Its end, where that decides what becomes of the next piece of a reply."""


def write(text: str) -> None:
    """Write to stdout and flush; characters that the encoding lacks are replaced.

    Models and files may contain control characters: a terminal gets the text through `safe_text`,
    a pipe gets it unchanged.
    """
    if not text:
        return
    if sys.stdout.isatty():
        before = _Written.begun
        _Written.begun = begun(before + text)
        text = safe_text(before + text)[len(before) :]
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


def in_lines(lines: Iterable[str]) -> str:
    """The lines as one text, each with a line end."""
    return "".join(f"{line}\n" for line in lines)


def tell(message: str) -> None:
    """Print a message of localspec, one line on stderr."""
    say(f"localspec: {message}")


def say(text: str = "", *, end: str = "\n", dim: bool = False) -> None:
    """Print a line on stderr."""
    line = safe_line(text)
    click.echo((click.style(line, dim=True) if dim else line) + end, err=True, nl=False)


def say_block(text: str) -> None:
    """Print several lines on stderr."""
    for line in text.splitlines():
        say(line)


def say_over(text: str) -> None:
    """Write a line of progress over the present line of stderr, if that is a terminal."""
    if sys.stderr.isatty():
        line = safe_line(text)[: _columns() - 1]
        # For click, colour is any escape sequence: without it they would be taken out.
        click.echo(f"\r{line}\x1b[K", err=True, nl=False, color=True)
        activity.line_open(bool(text))


def _columns() -> int:
    """The width of the terminal on stderr, which in a supervised process is not descriptor 2."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and len(given) < 10 and int(given):
        return int(given)
    with contextlib.suppress(OSError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    return 80


def bar(filled: int, width: int) -> str:
    """A bar of progress."""
    return "━" * filled + "─" * (width - filled)


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
    with contextlib.suppress(OSError):  # the C library asks at a terminal, past `cli.streams`
        os.set_blocking(sys.stdin.fileno(), True)
    return click.confirm(safe_line(question), default=default, err=True)


def summary(stats: Stats) -> str:
    """One line about a reply."""
    parts = ["1 token" if stats.emitted == 1 else f"{stats.emitted} tokens"]
    if stats.tokens_per_second:  # else a server's clock does not tell
        parts.append(f"{speed(stats.tokens_per_second)} tok/s")
    if stats.speedup is not None and stats.speedup.text:
        parts.append(stats.speedup.text)
    if stats.drafted:
        of = f"/{stats.verified} {stats.acceptance:.0%}"
        if not stats.verified:  # a server that does not tell which ones it judged
            of = f" of {stats.drafted} drafted"
        parts.append(f"accepted {stats.accepted}{of}")
        parts.append(f"{stats.tokens_per_round:.1f} tok/round")
    if stats.speculation.state != "on":
        at_end = " at the end" if stats.drafted and stats.speculation.state == "parked" else ""
        parts.append(f"{stats.speculation.state}{at_end}: {stats.speculation.reason}")
    return " · ".join(parts)
