"""Calls of tools below the text of a reply, and the question whether one may run."""

from __future__ import annotations

import json
from bisect import bisect
from collections.abc import Sequence

from textual.content import Content
from textual.geometry import Size
from textual.widgets import Static

from localspec.chats.calls import SavedCall
from tui.render.lines import cells
from tui.render.text import line_count, plain
from tui.terminal.textual_private import Placed

_SIGNS = {
    "written": "…",
    "waiting": "?",
    "running": "…",
    "done": "✓",
    "failed": "✗",
    "refused": "✗",
    "stopped": "✗",
}
_STATES = {
    "waiting": "waits",
    "running": "runs",
    "failed": "failed",
    "refused": "not allowed",
    "stopped": "stopped",
}
_MOST_SHOWN = 8000
"""Characters of a result that are shown unfolded."""
_MOST_CALLS = 64
"""Calls of a reply that are shown; 16 of one are run, and a file that is imported may have any."""
_PLACE = 200
"""Characters of a tool's place, which is shorter unless it is imported."""
_ARGUMENTS = 60
"""Characters of the arguments in the line of a call."""
_READ = 2000
"""Characters of arguments that are read as JSON for that line; longer ones stand there as they
are."""
_SLOW = 0.1
"""Seconds from which the time of a call is shown."""
_ASKED = 600
"""Characters of the arguments in the question."""
_ASKING = 4
"""Rows of the question in a low terminal."""
_PADDING = 4
"""Columns beside its text."""


class FoldedText(Placed, Static):
    """Lines that a click or a key unfolds to more text; hidden at first."""

    def __init__(self, classes: str) -> None:
        super().__init__(markup=False, classes=classes)
        self.display = False
        self._unfolded = False

    @property
    def sign(self) -> str:
        """The mark in front of such a line."""
        return "▾" if self._unfolded else "▸"

    def on_click(self) -> None:
        """Fold or unfold."""
        self.toggle()

    def toggle(self) -> None:
        """Fold or unfold."""
        self._unfolded = not self._unfolded
        self.draw()

    def draw(self) -> None:
        """Show the text, folded or not."""
        raise NotImplementedError


class CallsView(FoldedText):
    """A line for each call; arguments and results after a click."""

    def __init__(self) -> None:
        super().__init__("calls")
        self._calls: tuple[SavedCall, ...] = ()
        self._more = 0
        """Calls that are not shown."""

    def show(self, calls: Sequence[SavedCall]) -> None:
        """Show the calls as they are now."""
        shown, more = tuple(calls[:_MOST_CALLS]), max(0, len(calls) - _MOST_CALLS)
        if (shown, more) == (self._calls, self._more):
            return
        self._calls, self._more = shown, more
        self.display = bool(shown)
        self.draw()

    def draw(self) -> None:
        """Show a line for each call, with its arguments and results where it is unfolded."""
        parts = []
        for call in self._calls:
            parts.append(self._line(call))
            if self._unfolded:
                parts += self._inside(call)
        if self._more:
            parts.append(f"… {self._more:,} more calls; /export has them")
        self.update(Content("\n".join(parts)))

    def _line(self, call: SavedCall) -> str:
        facts = [f"{_SIGNS[call.state]} {(call.place or call.name)[:_PLACE]}"]
        if brief := _brief(call.arguments):
            facts[0] += f" {brief}"
        if call.state in _STATES:
            facts.append(_STATES[call.state])
        if call.result is not None:
            lines = line_count(call.result)
            if call.seconds >= _SLOW:
                facts.append(f"{call.seconds:.1f} s")
            short = lines == 1 and len(call.result) <= _ARGUMENTS
            size = f"{lines} lines" if lines > 1 else f"{len(call.result)} characters"
            facts.append(f"→ {call.result.rstrip()}" if short else size)
        return plain(f"{self.sign} {' · '.join(facts)}")

    @staticmethod
    def _inside(call: SavedCall) -> list[str]:
        found = [_indented(_pretty(call.arguments))]
        if call.result is not None:
            text = call.result[:_MOST_SHOWN]
            rest = len(call.result) - len(text)
            found.append(_indented("→ " + text))
            if rest:
                found.append(_indented(f"… {rest:,} more characters; /export has them"))
        return [plain(part) for part in found]


class PermissionBar(Static):
    """Asks whether a tool may run; hidden while nothing is asked. How to answer stands before the
    arguments, which take the rows that are left of a third of the screen.
    """

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.display = False
        self._shown: object = None

    def show(self, asked: tuple[str, str, str] | None, keys: str, size: Size) -> None:
        """Ask for a tool: words before the question, its place and its arguments; ``keys`` says how
        to answer, ``size`` is the terminal's.
        """
        if (asked, size) == self._shown:
            return
        self._shown = asked, size
        self.display = asked is not None
        if asked is None:
            return
        where, place = f"{asked[0]}May ", plain(asked[1])
        arguments = " ".join(plain(asked[2]).split())
        width, rows = max(1, size.width - _PADDING), max(_ASKING, size.height // 3)
        most = 2 * width - len(f"{where} run?")
        place = place if len(place) <= most else f"{place[: most - 1]}…"
        question = f"{where}{place} run?"
        apart = "  " if cells(f"{question}  {keys}") <= width else "\n"

        def asking(shown: int) -> Content:
            rest = len(arguments) - shown
            more = f"… ({rest:,} more: F7, Alt+O)" if rest else ""
            return Content.assemble(
                where,
                (place, "bold"),
                f" run?{apart}",
                (keys, "$primary"),
                (f"\n{arguments[:shown]}{more}", "$quiet"),
            )

        counts = [*range(min(len(arguments), _ASKED) + 1)]
        if len(arguments) <= _ASKED and asking(len(arguments)).get_height({}, width) <= rows:
            self.update(asking(len(arguments)))
            return
        fitting = bisect(counts, rows, key=lambda shown: asking(shown).get_height({}, width))
        self.update(asking(max(0, fitting - 1)))


def _brief(arguments: str) -> str:
    """The arguments in one line."""
    try:
        found = json.loads(arguments) if len(arguments) <= _READ else None
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        values = {key: json.dumps(value, ensure_ascii=False) for key, value in found.items()}
        text = " ".join(f"{key}={value}" for key, value in values.items())
    else:
        text = arguments[:_READ]
    text = " ".join(text.split())
    return text if cells(text) <= _ARGUMENTS else f"{text[:_ARGUMENTS]}…"


def _pretty(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False, indent=1)
    except (ValueError, RecursionError):
        return arguments


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))
