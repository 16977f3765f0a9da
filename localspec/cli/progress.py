"""Progress of downloads: a bar for each file on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from localspec.cli.output import bar, draw_over, say, say_over, tell
from localspec.core.units import duration, size
from localspec.models.catalog.links import is_true
from localspec.models.hub.download_jobs import Rate, WaitNotices, wait_text

if TYPE_CHECKING:
    from localspec.models.hub.download_jobs import DownloadProgress

_MOST_BARS = 6


class Bars:
    """Shows files on stderr; called again and again with the same list."""

    def __init__(self, *, live: bool | None = None) -> None:
        quiet = is_true("HF_HUB_DISABLE_PROGRESS_BARS")
        self._live = sys.stderr.isatty() and not quiet if live is None else live
        self._height = 0
        self._told: set[tuple[int, str]] = set()
        self._rates: dict[int, Rate] = {}

    def __call__(self, files: Sequence[DownloadProgress]) -> None:
        """Show the state of all files."""
        if self._live:
            self._draw(files)
        else:
            self._tell(files)

    def _tell(self, files: Sequence[DownloadProgress]) -> None:
        """Print a line when a file begins and one when it is done."""
        for index, file in enumerate(files):
            reason = file.pause.partition(";")[0]
            if reason and (index, reason) not in self._told:
                self._told.add((index, reason))
                say(f"{file.name}: {file.pause}")
            if file.state in {"fetching", "done"} and (index, file.state) not in self._told:
                self._told.add((index, file.state))
                say(_words(file))

    def _draw(self, files: Sequence[DownloadProgress]) -> None:
        width = shutil.get_terminal_size((80, 24)).columns
        lines = [self._line(i, file)[: width - 1] for i, file in enumerate(files)]
        if len(lines) > _MOST_BARS:  # a model of dozens of shards: those that move, and a count
            busy = [i for i, file in enumerate(files) if file.state not in {"queued", "done"}]
            whole = sum(file.state == "done" for file in files)
            lines = [lines[i] for i in busy[: _MOST_BARS - 1]]
            lines += [""] * (_MOST_BARS - 1 - len(lines)) + [
                f"{whole} of {len(files)} files complete"
            ]
        draw_over(lines, self._height)
        self._height = len(lines)

    def _line(self, index: int, file: DownloadProgress) -> str:
        name = file.name if len(file.name) <= 34 else file.name[:16] + "…" + file.name[-17:]
        share = file.done / file.size if file.size else 1.0
        filled = min(16, int(16 * share))
        return f"{name:<34} {bar(filled, 16)} {share:>4.0%} {self._rest(index, file)}"

    def _rest(self, index: int, file: DownloadProgress) -> str:
        """Rate and time left, or the state of the file."""
        if file.pause:
            return file.pause
        if file.state != "fetching":
            return file.state
        rate = self._rates.setdefault(index, Rate()).now(file.fetched)
        if rate is None:
            return "..."
        return f"{size(int(rate))}/s {duration((file.size - file.done) / rate)}"


class Countdown(WaitNotices):
    """A wait for the Hub before files flow: counted down on a terminal, else told once."""

    def __init__(self) -> None:
        super().__init__()
        self._live = sys.stderr.isatty()
        self._shown = False

    def show(self, why: str, left: float) -> None:
        """Show how long it still takes."""
        text = wait_text(why, left)
        if self._live:
            say_over(text)
        elif not self._shown:
            tell(text)
        self._shown = True

    def clear(self) -> None:
        """Clear the line on a terminal."""
        if self._shown:
            say_over("")
        self._shown = False


def _words(file: DownloadProgress) -> str:
    if file.state == "fetching":
        here = file.done - file.fetched
        there = f", {size(here)} of it already here" if here > 0 else ""
        return f"fetching {file.name} ({size(file.size)}{there})"
    how = f"fetched {size(file.fetched)}" if file.fetched else "already here"
    return f"{file.name}: whole, {how}"
