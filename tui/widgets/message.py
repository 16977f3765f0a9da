"""The widgets of a conversation: questions, replies, notes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from localspec.chats.pictures import Reference, references, shown
from localspec.core.errors import LocalspecError
from localspec.core.in_thread import Gone, in_thread
from localspec.core.picture import Picture, Pixels, is_sound
from localspec.core.units import size
from tui.render.lines import EMPTY, Line, lines_of
from tui.render.text import Thought, plain, thought, tokens_until
from tui.session.commands import told_here
from tui.session.conversation import ChatTurn
from tui.session.token_runs import styled
from tui.terminal.textual_private import Placed
from tui.widgets.calls import CallsView, FoldedText
from tui.widgets.document import StreamedMarkdown, TextFlow
from tui.widgets.lines import Lines

_FOLDED_LINES = 8
_FOLDED_CHARACTERS = 1600


class QuestionView(Lines):
    """A message of the user as it was typed; a long text is folded, a click unfolds it."""

    def __init__(self, turn: ChatTurn) -> None:
        self.turn = turn
        self._pictures = references(turn.text)
        self._drawn_pictures: list[Line] = []
        """What is shown above the text."""
        self._whole = plain(shown(turn.text))
        lines = self._whole.split("\n")
        self._short = "\n".join(lines[:_FOLDED_LINES])[:_FOLDED_CHARACTERS]
        hidden = len(lines) - self._short.count("\n") - 1
        self._more = f"… {hidden} more lines" if hidden else "… more"
        self.foldable = self._folded = len(self._short) < len(self._whole)
        super().__init__(self._lines())

    settled = True
    """Whether all text is typeset."""

    def on_mount(self) -> None:
        """Draw its pictures, which another process decodes."""
        if self._pictures:
            self.run_worker(self._show_pictures())

    async def _show_pictures(self) -> None:
        for picture in self._pictures:
            lines = await in_thread(functools.partial(_thumbnail, picture))
            self._drawn_pictures += [*lines, Line(EMPTY)]
        self.replace(0, self._lines())

    def texts(self) -> list[Lines]:
        """The text, unfolded, to search in."""
        if self._folded:
            self.toggle()
        return [self]

    def folds(self) -> list[QuestionView | FoldedText]:
        """Itself, where it is long enough to be folded."""
        return [self] if self.foldable else []

    def _lines(self) -> list[Line]:
        if not self._folded:
            return [*self._drawn_pictures, *lines_of(Content(self._whole))]
        more = Line(Content.styled(f"{self._more} (click or F7, Alt+O to unfold)", "$quiet"))
        return [*self._drawn_pictures, *lines_of(Content(self._short)), more]

    def on_click(self, event: events.Click) -> None:
        """Fold or unfold."""
        del event
        self.toggle()

    def toggle(self) -> None:
        """Fold or unfold."""
        if self.foldable:
            self._folded = not self._folded
            self.replace(0, self._lines())


def _thumbnail(picture: Reference, gone: Gone) -> list[Line]:
    """A picture in small, or why there is none."""
    from localspec.media import decoding
    from tui.render.lines import THUMBNAIL_SIZE, thumbnail

    try:
        data = decoding.file_of(Picture(path=str(picture.path), name=picture.name))
        if is_sound(data[:12]):
            said = f"♪ {picture.name}, a sound of {size(len(data))}"
            return [Line(Content.styled(plain(said), "$quiet"))]
        found = decoding.decoded(data, picture.name, gone, within=THUMBNAIL_SIZE)
        return thumbnail(found) if isinstance(found, Pixels) else []
    except LocalspecError as error:
        return [Line(Content.styled(plain(str(error)), "$quiet"))]


class Note(Placed, Static):
    """A line of the interface."""

    def __init__(self, text: str, *, error: bool = False) -> None:
        self.says = text = told_here(text) if error else text
        # A bar at the left is a question's; one in the text is a quotation's.
        shown = "✗ " + text.replace("\n", "\n  ") if error else text
        super().__init__(plain(shown), markup=False, classes="-error" if error else "")


class Help(Lines):
    """A longer text of the interface, as Markdown."""

    def __init__(self, text: str) -> None:
        from tui.render.markdown import typeset  # here: it is loaded after the first picture

        super().__init__(typeset(text))


_MARGIN = 4
"""Columns to the left and right of a list."""
_WIDEST_LEFT = 24
"""Cells; more would leave less than half of a narrow terminal for the right column."""


class Columns(Lines):
    """Rows of two columns; a long left side has a row of its own."""

    def __init__(self, rows: Sequence[tuple[str, str]], room: int) -> None:
        """``room`` is the width of the terminal in columns."""
        super().__init__(self._lines(rows, room))

    def show(self, rows: Sequence[tuple[str, str]], room: int) -> None:
        """Show other rows, or the same in another width."""
        self.replace(0, self._lines(rows, room))

    @classmethod
    def _lines(cls, rows: Sequence[tuple[str, str]], room: int) -> list[Line]:
        lefts = [len(left) for left, _ in rows]
        width = max((n for n in lefts if n <= _WIDEST_LEFT), default=0) + 2
        widest = _WIDEST_LEFT
        if 2 * width > room - _MARGIN:  # every left side has a row of its own
            width, widest = 2, 0
        return [line for left, right in rows for line in cls._row(left, right, width, widest)]

    @staticmethod
    def _row(left: str, right: str, width: int, widest: int) -> list[Line]:
        label, indent = Content.styled(left.ljust(width), "$primary"), Content(" " * width)
        explained = Content.styled(plain(right), "$quiet")
        if len(left) <= widest:
            return [Line(explained, label, indent)]
        return [Line(label), Line(explained, indent, indent)]


class ThoughtView(FoldedText):
    """The thinking part of a reply: one line, and the text after a click."""

    def __init__(self) -> None:
        super().__init__("thought")
        self._found = Thought("", 0, False)
        self._tokens = 0

    def show(self, found: Thought, tokens: int) -> None:
        """Show the line, with the text if it was unfolded."""
        self._found, self._tokens = found, tokens
        self.display = True
        self.draw()

    def draw(self) -> None:
        """Show the line; while it is folded, the text is not laid out."""
        found, tokens = self._found, self._tokens
        verb = "thinking" if found.open else "thought"
        size = f"{tokens} tokens" if tokens else f"{len(found.text.split())} words"
        line = f"{self.sign} {verb}, {size}"
        self.update(Content(f"{line}\n{plain(found.text)}" if self._unfolded else line))


class Caption(Placed, Static):
    """The line below a reply."""


class ReplyView(Placed, Vertical):
    """A reply as Markdown with the open block as plain text, or coloured by token origin.

    `sync` updates the visible form from the turn; the hidden one is updated when shown again.
    """

    @dataclass
    class TokenClicked(Message):
        """A token of the coloured reply was clicked."""

        turn: ChatTurn
        index: int

    def __init__(self, turn: ChatTurn, *, colours: bool) -> None:
        super().__init__()
        self.turn = turn
        self._colours = colours
        self._given = 0  # characters of the turn's text that the Markdown form has
        self._coloured = 0  # characters that the coloured form holds
        self._marked = False
        self._captioned = ""
        self._thought: Thought | None = None
        self._thinking = ThoughtView()
        self.markdown = StreamedMarkdown()
        self.flow = TextFlow("flow")
        self.calls = CallsView()
        self._caption = Caption("", markup=False, classes="caption")
        self._caption.display = False

    def compose(self) -> ComposeResult:
        """Both forms and the caption."""
        yield self._thinking
        yield self.markdown
        yield self.flow
        yield self.calls
        yield self._caption

    async def on_mount(self) -> None:
        """Show the text so far."""
        self._choose()
        await self.sync()

    async def set_colours(self, colours: bool) -> None:
        """Show origins, or Markdown."""
        if colours is not self._colours:
            self._colours = colours
            self._choose()
            await self.sync()

    @property
    def settled(self) -> bool:
        """Whether all text is typeset."""
        return self._colours or (self.markdown.is_attached and self.markdown.settled)

    def texts(self) -> tuple[Lines, ...]:
        """The lines that are shown, unfolded, to search in."""
        self.markdown.closed.unfold()
        return self.growing

    @property
    def growing(self) -> tuple[Lines, ...]:
        """The lines that are shown and that new text goes to, from top to bottom."""
        return (self.flow,) if self._colours else (self.markdown.closed, self.markdown.tail)

    @property
    def growing_region(self) -> Region:
        """Where the growing lines are on the screen."""
        return self.flow.region if self._colours else self.markdown.region

    def folds(self) -> list[QuestionView | FoldedText]:
        """The thought and the calls, where there are any."""
        return [view for view in (self._thinking, self.calls) if view.display]

    def mark(self, span: tuple[int, int]) -> None:
        """Show one span of the coloured text reversed."""
        text = styled(self.turn.runs.since(0))
        self._coloured = len(text)
        self._marked = True
        self.flow.reset(text.stylize("reverse", *span))
        self.call_after_refresh(self._reveal, span[0])

    def _reveal(self, position: int) -> None:
        """Scroll to a character of the coloured text if it is not visible."""
        log = self.parent
        if not isinstance(log, Widget) or not self.flow.is_attached:
            return
        y = self.flow.region.y + self.flow.row_at(position)
        if not log.content_region.y <= y < log.content_region.bottom:
            log.release_anchor()
            y += log.scroll_offset.y - log.content_region.y
            log.scroll_to_region(Region(0, y, 1, 1), animate=False, force=True)

    def unmark(self) -> None:
        """Show the coloured text without a mark."""
        if self._marked:
            self._marked = False
            self.flow.reset(styled(self.turn.runs.since(0)))

    @on(TextFlow.Pointed)
    def _pointed(self, event: TextFlow.Pointed) -> None:
        event.stop()
        ends = itertools.accumulate(len(plain(token.text)) for token in self.turn.tokens)
        index = next((i for i, end in enumerate(ends) if event.position < end), None)
        if index is not None:
            self.post_message(self.TokenClicked(self.turn, index))

    def _choose(self) -> None:
        self._thinking.display = not self._colours and self._thought is not None
        self.markdown.display = not self._colours
        self.flow.display = self._colours

    async def sync(self, waiting: str = "") -> None:
        """Show the turn as it is now; ``waiting`` is shown where it has no text yet."""
        if not self.markdown.is_attached:
            return  # the screen is closing
        if self._colours:
            self._sync_flow()
        else:
            self._sync_markdown()
        self.calls.show(self.turn.calls)
        caption = self.turn.caption or ("" if self.turn.text else waiting)
        if caption != self._captioned:
            self._captioned = caption
            self._caption.update(caption)
            self._caption.display = bool(caption)

    def _sync_flow(self) -> None:
        runs = self.turn.runs.since(self._coloured)
        if runs:
            self._coloured += sum(len(run.text) for run in runs)
            self.flow.add(styled(runs))

    def _sync_thought(self) -> None:
        """Show the thinking apart from the answer."""
        found = thought(self.turn.text)
        if found is None or found == self._thought:
            return
        if self._given and self._thought is None:
            self.markdown.clear()  # the thinking is recognised by its end only
        if self._thought is None or self._thought.open:
            self._given = found.answer
        self._thought = found
        end = len(self.turn.text[: found.answer].rstrip())
        self._thinking.show(found, tokens_until(self.turn.tokens, end))

    def _sync_markdown(self) -> None:
        self._sync_thought()
        said = self.turn.said
        new = said[self._given :]
        self._given = max(self._given, len(said))
        self.markdown.add(plain(new))
        if self.turn.end is not None:
            self.markdown.finish()
