"""One-line widgets: title, legend, queued messages, suggestions, search and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widgets import Input, Static

from localspec.core.drafter_registry import find
from localspec.core.events import Loading, ModelInfo
from tui.input import keymap
from tui.input.completion import Completion
from tui.render.text import plain
from tui.session.stats import SEPARATOR, Line
from tui.session.token_runs import legend


class Bar(Static):
    """Text that is updated only where it changes."""

    GROWS = False
    """Whether its height may change with the text."""
    _shown = Content("")

    def show(self, text: Content) -> None:
        """Show a text."""
        if not text.is_same(self._shown):
            self._shown = text
            self.update(text, layout=self.GROWS)


_TITLE, _SYSTEM = 40, 30
"""Most characters of a chat's title and of its system prompt in the title bar."""


class TitleBar(Static):
    """Which chat and branch is shown, the model that is loaded, and the system prompt."""

    def __init__(self, name: str) -> None:
        self._model = self._text(name, [])
        self._place = Content("")
        self._titled = False
        self._shown: object = None
        super().__init__(markup=False)
        self._update()

    def opened(self, info: ModelInfo, server: str = "") -> None:
        """Show the loaded target, its draft model, and the backend; or the server that answers."""
        if server:
            self._model = self._text(info.name, [f"{info.backend} at {server}"])
            self._update()
            return
        draft = f"draft: {Path(info.draft).stem}" if info.draft else "no draft model"
        built_in = [spec.built_in for name in info.drafters if (spec := find(name))]
        if not info.draft and any(built_in):
            draft = next(filter(None, built_in))
        threads = f"{info.threads} thread" + ("" if info.threads == 1 else "s")
        stem = Path(info.target).stem
        target = [] if info.name.endswith(".gguf") else [f"target: {stem}"]
        if target == ["target: target"] and draft == "draft: draft":
            target, draft = (
                [],
                "with its draft model",
            )  # its file names say no more
        self._model = self._text(info.name, [*target, draft, f"{info.backend}, {threads}"])
        self._update()

    def place(
        self,
        chat: tuple[int, int],
        title: str,
        branch: tuple[int, int],
        system: str | None,
        *,
        elsewhere: str,
    ) -> None:
        """Show which open chat and which of its branches is shown, and its system prompt.

        ``chat`` is an index from 0 and a count, ``branch`` a number from 1 and a count; an empty
        ``title`` is that of a new chat, ``elsewhere`` says what is being done in other chats.
        """
        shown = (chat, title, branch, system, elsewhere)
        if shown == self._shown:
            return
        self._shown = shown
        (place, count), (at, branches) = chat, branch
        text = Content("")
        if count > 1:
            text = Content.styled(f"[{place + 1}/{count}] ", "bold $text-accent")
        if title or count > 1:
            text += Content.styled(_cut(title or "new chat", _TITLE), "bold") + Content("  ")
        if elsewhere:
            text += Content.styled(f"{elsewhere}  ", "$text-warning")
        if branches > 1:
            text += Content.styled(f"branch {at} of {branches}  ", "$text-accent")
        if system:
            text += Content.styled(f"system: {_cut(system, _SYSTEM)}  ", "$quiet")
        self._place = text
        self._titled = bool(title)
        self._update()

    def _update(self) -> None:
        """The title of the chat takes the place of the program's name."""
        name = Content("") if self._titled else Content.styled("localspec  ", "bold $primary")
        self.update(self._place + name + self._model)

    @staticmethod
    def _text(name: str, rest: list[str]) -> Content:
        name = Path(name).stem if name.endswith(".gguf") else name
        parts: list[str | tuple[str, str]] = [plain(name)]
        parts += [(SEPARATOR + plain(part), "$quiet") for part in rest]
        return Content.assemble(*parts)


def _cut(text: str, most: int) -> str:
    line = " ".join(plain(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


class LegendBar(Static):
    """The meaning of the origin styles."""

    def on_resize(self) -> None:
        """Use the labels that fit."""
        self.update(legend(self.content_size.width))


class SuggestBar(Static):
    """Completions of the word that is typed."""

    _MOST = 6
    _listed = range(0)
    """Indices of the completions that are listed."""

    @dataclass
    class Picked(Message):
        """A completion was clicked."""

        index: int

    def on_click(self, event: Click) -> None:
        """Pick the completion that is clicked."""
        if event.y < len(self._listed):
            self.post_message(self.Picked(self._listed[event.y]))

    def show(self, found: list[Completion], chosen: int | None, room: int) -> None:
        """List the completions around ``chosen``, which is marked, in at most ``room`` rows."""
        self.display = bool(found)
        width = max((len(f.text) for f in found), default=0) + 2
        most = min(self._MOST, room if len(found) <= room else max(1, room - 1))
        first = max(0, min((chosen or 0) - most // 2, len(found) - most))
        self._listed = range(len(found))[first : first + most]
        lines = [
            Content.assemble(
                (plain(f.text).ljust(width), "reverse" if at == chosen else "$primary"),
                (plain(f.help), "$quiet"),
            )
            for at, f in [(at, found[at]) for at in self._listed]
        ]
        if len(found) > most:
            shown = f"{first + 1} to {first + most} of {len(found)}, ↑ ↓"
            lines.append(Content.styled(shown, "$quiet"))
        self.update(Content("\n").join(lines))


class QueueBar(Static):
    """Queued messages."""

    _shown: tuple[list[str], str] = ([], "")

    def show(self, waiting: list[str], why: str) -> None:
        """List the messages, one line each."""
        if (waiting, why) == self._shown or (not waiting and not self.display):
            return
        self._shown = (waiting, why)
        self.display = bool(waiting)
        lines = [" ".join(plain(text).split()) for text in waiting[:3]]
        if len(waiting) > len(lines):
            lines[-1] = f"(and {len(waiting) - len(lines)} more)  {lines[-1]}"
        if lines:  # first: the text is cut where it has no room
            lines[0] = f"(↑ takes the last back; {why})  {lines[0]}"
        self.update(Content("\n".join(f"↳ {line}" for line in lines)))


class StatsBar(Bar):
    """The figures of the reply, or why nothing is drafted; always visible."""

    @property
    def room(self) -> int:
        """Cells of a line."""
        return self.content_size.width or self.app.size.width - 4

    def show_figures(self, lines: Sequence[Line]) -> None:
        """Show figures on one line or two."""
        self.show(Content("\n").join(_joined(line) for line in lines))

    def show_loading(self, loading: Loading | None) -> None:
        """Show the progress of loading."""
        if loading is None:
            self.show(Content.styled("starting the engine", "$quiet"))
            return
        text = plain(loading.text)
        if loading.fraction is not None:
            cells = 20
            done = round(cells * min(1.0, max(0.0, loading.fraction)))
            text = f"{'━' * done}{'╌' * (cells - done)}{SEPARATOR}{text}"
        self.show(Content.styled(text, "$quiet"))

    def show_stopped(self) -> None:
        """Show that the engine is not running."""
        text = "engine stopped; Ctrl+R restarts it"
        self.show(Content.styled(text, "$text-error"))

    def show_hint(self, text: str) -> None:
        """Show a hint in place of the figures."""
        self.show(Content.styled(plain(text), "$text-accent"))


def _joined(line: Line) -> Content:
    parts = [Content.styled(plain(figure.text), figure.style) for figure in line]
    return Content.styled(SEPARATOR, "$quiet").join(parts)


class FindInput(Input):
    """The words that are searched. Its keys are messages, which come behind those of its words."""

    BINDINGS = keymap.FIND

    class Left(Message):
        """The user leaves the search."""

    @dataclass
    class Stepped(Message):
        """The user wants the hit before (-1) or after (1)."""

        step: int

    def action_step(self, step: int) -> None:
        """Go to another hit."""
        self.post_message(self.Stepped(step))

    def action_leave(self) -> None:
        """Back to the composer."""
        self.post_message(self.Left())


class FindBar(Horizontal):
    """The input of the search, and which hit is shown."""

    def compose(self) -> ComposeResult:
        """Both parts."""
        self.input = FindInput(placeholder="search this chat", compact=True, validate_on=())
        self._count = Static(markup=False)
        yield Static("Find", markup=False, id="find-label")
        yield self.input
        yield self._count

    def open(self) -> None:
        """Show the bar and type into it; the last search is replaced by typing."""
        self.display = True
        self.input.focus()
        self.input.action_select_all()

    def show_count(self, text: str) -> None:
        """Show which hit it is, and of how many."""
        self._count.update(text)
