"""Blocks of code among typeset lines, and their folded form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from textual.content import Content

from tui.render.lines import CODE, CodeBlock, Entry, Line

SHORTEST = 12
"""Lines of code from which a block can be folded."""
_SHOWN = 4
"""Lines of a folded block that stay."""


@dataclass(frozen=True, slots=True)
class Code:
    """A block of code, and which lines of a text it has now."""

    block: CodeBlock
    first: int
    lines: tuple[Line, ...]

    @property
    def end(self) -> int:
        """Index after the last of its lines."""
        return self.first + len(self.lines)

    @property
    def folded(self) -> bool:
        """Whether lines are hidden."""
        return bool(self.lines[-1].hidden)

    @property
    def foldable(self) -> bool:
        """Whether it is folded, or long enough for it."""
        return self.folded or len(self.lines) >= SHORTEST

    def toggled(self) -> list[Entry]:
        """Its lines, folded if they were not, else unfolded."""
        if self.folded:
            return unfolded(self.lines)
        shown, hidden = self.lines[:_SHOWN], self.lines[_SHOWN:]
        says = f"… {len(hidden)} more lines (click or F7, Alt+O to unfold)"
        more, lead = Content.styled(says, "$quiet"), hidden[0].rest
        return [*shown, Line(more, lead, lead, CODE, block=self.block, hidden=hidden)]


def codes(entries: Sequence[Entry]) -> Iterator[Code]:
    """The blocks of code of a text, from top to bottom."""
    indexed = enumerate(entries)
    for block, part in groupby(indexed, lambda pair: getattr(pair[1], "block", None)):
        if block is not None:
            found = list(part)
            lines = tuple(line for _, line in found if isinstance(line, Line))
            yield Code(block, found[0][0], lines)


def unfolded(lines: Iterable[Entry]) -> list[Entry]:
    """The lines with those that some of them stand for."""
    return [one for line in lines for one in (getattr(line, "hidden", ()) or (line,))]
