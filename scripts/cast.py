"""Record a terminal session of the real program and draw it as an animated SVG.

    python scripts/cast.py

plays the keys of docs/first-minute.keys in a pseudo-terminal and draws docs/first-minute.svg.
Speeds in the picture are those of this machine at that moment: record on a quiet one.

A file of keys has one step a line: ``wait TEXT`` until the screen shows it, ``type TEXT``,
``key NAME``, ``pause SECONDS``; the first line is the command.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import fcntl
import html
import os
import pty
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyte

ROOT = Path(__file__).resolve().parent.parent
_KEYS = {
    "enter": "\r",
    "escape": "\x1b",
    "tab": "\t",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "f1": "\x1bOP",
    "f2": "\x1bOQ",
    "f3": "\x1bOR",
    "f4": "\x1bOS",
    "f5": "\x1b[15~",
    "f6": "\x1b[17~",
    "f7": "\x1b[18~",
    "alt+o": "\x1bo",
    "alt+y": "\x1by",
    "ctrl+d": "\x04",
    "ctrl+q": "\x11",
    "ctrl+t": "\x14",
}
_TYPING_SECONDS = 0.05
"""Between two typed characters."""
_WAIT_SECONDS = 300.0
_LONGEST_STILL = 2.5
"""Seconds after which a picture that does not change is shortened."""
_FRAME_SECONDS = 0.125
_END_SECONDS = 4.0
"""How long the last frame stays."""
_CELL_WIDTH, _CELL_HEIGHT, _MARGIN = 8.4, 18, 12
_FONTS = "ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace"
_BACKGROUND, _FOREGROUND = "#11151c", "#d8dee9"
_NAMED = {
    "black": "#3b4252",
    "red": "#e06c75",
    "green": "#98c379",
    "brown": "#e5c07b",
    "blue": "#61afef",
    "magenta": "#c678dd",
    "cyan": "#56b6c2",
    "white": "#d8dee9",
}


@dataclass(frozen=True)
class Output:
    """A piece of the program's output, and its time."""

    seconds: float
    text: str


class Recording:
    """A program in a pseudo-terminal, with the screen that it has drawn so far."""

    def __init__(self, command: list[str], columns: int, rows: int, home: Path) -> None:
        self.outputs: list[Output] = []
        self._screen = pyte.Screen(columns, rows)
        self._stream = Drawing(self._screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        environment = os.environ | {
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LOCALSPEC_HOME": str(home),
            "PYTHONPATH": str(ROOT),
            "COLUMNS": str(columns),
            "LINES": str(rows),
        }
        self._pid, self._file = pty.fork()
        if self._pid == 0:
            os.execvpe(command[0], command, environment)  # noqa: S606 - the program to record
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._began = time.monotonic()

    def send(self, text: str) -> None:
        """Press keys."""
        os.write(self._file, text.encode())

    def read(self, seconds: float) -> None:
        """Record what is written during the next seconds."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self._file], [], [], left)[0]:
                return
            try:
                raw = os.read(self._file, 65536)
            except OSError:  # the program has ended
                time.sleep(left)
                return
            if text := self._decoder.decode(raw):
                self.outputs.append(Output(time.monotonic() - self._began, text))
                self._stream.feed(text)

    def wait(self, text: str) -> None:
        """Record until the screen shows a text."""
        end = time.monotonic() + _WAIT_SECONDS
        while not any(text in line for line in self._screen.display):
            if time.monotonic() > end:
                shown = "\n".join(self._screen.display)
                sys.exit(f"cast: waited in vain for {text!r}; the screen shows\n{shown}")
            self.read(0.1)

    def close(self) -> None:
        """End the program."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGTERM)
        os.waitpid(self._pid, 0)
        os.close(self._file)


class Drawing(pyte.Stream):
    """Draws output without private sequences such as ``ESC [ > 1 u``, which pyte would print.

    A piece of output may end inside a sequence: its beginning waits for the next piece.
    """

    _PRIVATE = re.compile(r"\x1b\[[<>=][0-?]*[ -/]*[@-~]")
    _BEGUN = re.compile(r"\x1b(\[[0-?]*[ -/]*)?\Z")

    def __init__(self, screen: pyte.Screen) -> None:
        super().__init__(screen)
        self._waiting = ""

    def feed(self, data: str) -> None:
        """Draw a piece of output."""
        text = self._waiting + data
        begun = self._BEGUN.search(text)
        end = len(text) if begun is None else begun.start()
        self._waiting = text[end:]
        super().feed(self._PRIVATE.sub("", text[:end]))


def play(recording: Recording, steps: list[str]) -> None:
    """Carry out the steps of a file of keys."""
    for step in steps:
        name, _, value = step.partition(" ")
        match name:
            case "wait":
                recording.wait(value)
            case "pause":
                recording.read(float(value))
            case "key":
                recording.send(_KEYS[value])
                recording.read(_TYPING_SECONDS)
            case "type":
                for character in value:
                    recording.send(character)
                    recording.read(_TYPING_SECONDS)
            case _:
                sys.exit(f"cast: there is no step {name!r}")


# -- drawing -----------------------------------------------------------------------------------

Row = tuple[tuple[str, str, str, str], ...]
"""Runs of text with foreground, background and attributes."""


@dataclass(frozen=True)
class Frame:
    """A picture of the screen, and the time from which it was shown."""

    seconds: float
    rows: tuple[Row, ...]


def frames(outputs: list[Output], columns: int, rows: int) -> Iterator[Frame]:
    """The different screens, at most one for each eighth of a second."""
    screen = pyte.Screen(columns, rows)
    stream = Drawing(screen)
    shown: tuple[Row, ...] | None = None
    for at, output in enumerate(outputs):
        stream.feed(output.text)
        following = outputs[at + 1].seconds if at + 1 < len(outputs) else output.seconds + 1e9
        if int(following / _FRAME_SECONDS) == int(output.seconds / _FRAME_SECONDS):
            continue
        now = tuple(row(screen, y) for y in range(rows))
        if now != shown:
            shown = now
            yield Frame(output.seconds, now)


def row(screen: pyte.Screen, y: int) -> Row:
    """One line of the screen, without spaces at its end that show nothing."""
    runs: list[tuple[str, str, str, str]] = []
    for x in range(screen.columns):
        cell = screen.buffer[y][x]
        fore, back = colour(cell.fg, _FOREGROUND), colour(cell.bg, _BACKGROUND)
        if cell.reverse:
            fore, back = back, fore
        names = ("bold", "italics", "underscore")
        style = "".join(name[0] for name in names if getattr(cell, name))
        if runs and runs[-1][1:] == (fore, back, style):
            runs[-1] = (runs[-1][0] + cell.data, fore, back, style)
        else:
            runs.append((cell.data, fore, back, style))
    while runs and not runs[-1][0].strip() and runs[-1][2] == _BACKGROUND:
        runs.pop()
    return tuple(runs)


def colour(name: str, default: str) -> str:
    """A colour of pyte as CSS writes it."""
    if name == "default":
        return default
    return _NAMED.get(name.removeprefix("bright"), f"#{name}")


def svg(shown: list[Frame], columns: int, rows: int, title: str) -> str:
    """The frames side by side behind a window that jumps from one to the next."""
    starts = list(_shortened(shown))
    whole = starts[-1] + _END_SECONDS
    width = columns * _CELL_WIDTH + 2 * _MARGIN
    height = rows * _CELL_HEIGHT + 2 * _MARGIN
    styles, lines = Names("s"), Names("r")
    drawn, steps = [], []
    for at, (frame, start) in enumerate(zip(shown, starts, strict=True)):
        uses = "".join(
            f'<use href="#{lines.of(_row_svg(line, styles))}" y="{y * _CELL_HEIGHT}"/>'
            for y, line in enumerate(frame.rows)
            if line
        )
        drawn.append(f'<g transform="translate({at * width:.0f})">{uses}</g>')
        steps.append(f"{100 * start / whole:.2f}%{{transform:translateX({-at * width:.0f}px)}}")
    last = f"translateX({-(len(shown) - 1) * width:.0f}px)"
    css = "".join(f".{name}{{{text}}}" for text, name in styles.names.items())
    defs = "".join(f'<g id="{name}">{text}</g>' for text, name in lines.names.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}"><title>{html.escape(title)}</title><style>'
        f"text{{font:14px {_FONTS};white-space:pre}}"
        f"#film{{animation:film {whole:.2f}s step-end infinite}}"
        f"@keyframes film{{{''.join(steps)}}}"
        f"@media (prefers-reduced-motion){{#film{{animation:none;transform:{last}}}}}{css}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="{_BACKGROUND}"/><defs>{defs}</defs>'
        f'<svg x="{_MARGIN}" y="{_MARGIN}" width="{columns * _CELL_WIDTH:.0f}" '
        f'height="{rows * _CELL_HEIGHT}"><g id="film">{"".join(drawn)}</g></svg></svg>\n'
    )


def _shortened(shown: list[Frame]) -> Iterator[float]:
    """The time of each frame; pauses in which nothing changes are shortened."""
    now, before = 0.0, shown[0].seconds
    for frame in shown:
        now += min(_LONGEST_STILL, frame.seconds - before)
        before = frame.seconds
        yield now


class Names:
    """Short names for texts that occur again and again."""

    def __init__(self, letter: str) -> None:
        self.names: dict[str, str] = {}
        self._letter = letter

    def of(self, text: str) -> str:
        """The name of a text."""
        return self.names.setdefault(text, f"{self._letter}{len(self.names):x}")


def _row_svg(line: Row, styles: Names) -> str:
    parts, x = [], 0
    for text, fore, back, style in line:
        at, cells = x * _CELL_WIDTH, len(text)
        x += cells
        if back != _BACKGROUND:
            parts.append(
                f'<rect x="{at:.1f}" width="{cells * _CELL_WIDTH:.1f}" height="{_CELL_HEIGHT}" '
                f'class="{styles.of(f"fill:{back}")}"/>'
            )
        if text.strip():
            css = f"fill:{fore}"
            css += ";font-weight:bold" if "b" in style else ""
            css += ";font-style:italic" if "i" in style else ""
            css += ";text-decoration:underline" if "u" in style else ""
            stripped = text.lstrip()
            at += (cells - len(stripped)) * _CELL_WIDTH
            stripped = stripped.rstrip()
            # The length keeps columns in place whatever the viewer's font is.
            parts.append(
                f'<text xml:space="preserve" x="{at:.1f}" y="14" '
                f'textLength="{len(stripped) * _CELL_WIDTH:.1f}" '
                f'class="{styles.of(css)}">{html.escape(stripped, quote=False)}</text>'
            )
    return "".join(parts)


# -- the command line --------------------------------------------------------------------------


def record(keys: Path, columns: int, rows: int, home: Path) -> tuple[list[Output], str]:
    """Play a file of keys; returns the outputs and the command."""
    lines = keys.read_text(encoding="utf-8").splitlines()
    command, *steps = [line for line in lines if line.strip() and not line.startswith("#")]
    first, *rest = command.split()
    programs = {
        "localspec": [sys.executable, "-P", "-m", "localspec"],
        "python": [sys.executable],
    }
    program = programs.get(first, [first])
    recording = Recording([*program, *rest], columns, rows, home)
    try:
        play(recording, steps)
    finally:
        recording.close()
    return recording.outputs, command


def main() -> None:
    """Read the command line, record, and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=Path, default=ROOT / "docs" / "first-minute.keys")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "first-minute.svg")
    parser.add_argument("--home", type=Path, help="LOCALSPEC_HOME; a new one by default")
    parser.add_argument("--size", default="96x26", help="columns x rows")
    arguments = parser.parse_args()
    columns, rows = (int(part) for part in arguments.size.split("x"))
    with tempfile.TemporaryDirectory() as new:
        outputs, title = record(arguments.keys, columns, rows, arguments.home or Path(new))
    picture = svg([*frames(outputs, columns, rows)], columns, rows, title)
    arguments.out.write_text(picture, encoding="utf-8")
    print(f"{arguments.out}: {len(picture.encode()) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
