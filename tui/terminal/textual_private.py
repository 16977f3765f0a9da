"""All that the interface uses of Textual without being promised it, in one place.

`PARTS` lists it as it is in the version `TRIED`, which pyproject.toml pins: a test fails by name
for each part that another version has changed or lost. `tui/terminal/driver.py` has the parts
of the terminal driver; nothing else in `tui` may use any.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Console
from textual import _ansi_sequences, content
from textual._compositor import CompositorUpdate
from textual._styles_cache import StylesCache
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter, Monochrome, NoColor
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget
from textual.worker import Worker, WorkerFailed, get_current_worker

if TYPE_CHECKING:
    _App: TypeAlias = App[None]
    _Screen: TypeAlias = Screen[Any]
    _Widget: TypeAlias = Widget
else:  # a base of Textual's here would keep the style sheet of the next base from being inherited
    _App = _Screen = _Widget = object

TRIED = "8.2.8"
"""The version of Textual with which all parts were tried."""

PARTS = {
    "textual.widget:Widget._size_updated": (
        "(self, size: 'Size', virtual_size: 'Size', container_size: 'Size', "
        "layout: 'bool' = True) -> 'bool'"
    ),
    "textual.widget:Widget._set_dirty": "(self, *regions: 'Region') -> 'None'",
    "textual.widget:Widget._clear_arrangement_cache": "(self) -> 'None'",
    "textual.widget:Widget._message_loop_exit": "(self) -> 'None'",
    "textual.widget:Widget()._layout_updates": "int",
    "textual.screen:Screen._refresh_layout": (
        "(self, size: 'Size | None' = None, scroll: 'bool' = False) -> 'None'"
    ),
    "textual.screen:Screen._on_timer_update": "(self) -> 'None'",
    "textual.screen:Screen()._layout_required": "bool",
    "textual.screen:Screen()._repaint_required": "bool",
    "textual.screen:Screen()._dirty_widgets": "set",
    "textual.screen:Screen()._compositor": "Compositor",
    "textual._compositor:Compositor.render_strips": (
        "(self, size: 'Size | None' = None) -> 'list[Strip]'"
    ),
    "textual._compositor:CompositorUpdate.render_segments": "(self, console: 'Console') -> 'str'",
    "textual._ansi_sequences:ANSI_SEQUENCES_KEYS": "dict",
    "textual.content:divide_line": (
        "(text: 'str', width: 'int', fold: 'bool' = True) -> 'list[int]'"
    ),
    "textual._styles_cache:StylesCache.get_inner_outer": (
        "(cls, base_background: 'Color', background: 'Color') -> 'tuple[Style, Style]'"
    ),
    "textual.app:App()._batch_count": "int",
    "textual.app:App()._filters": "list",
    "textual.app:App()._exception": "NoneType",
    "textual.app:App()._screen_stack": "list",
    "textual.app:App()._driver": "NoneType",
    "textual.app:App._display": (
        "(self, screen: 'Screen', renderable: 'RenderableType | None') -> 'None'"
    ),
    "textual.app:App._fatal_error": "(self) -> 'None'",
    "textual.app:App._handle_exception": "(self, error: 'Exception') -> 'None'",
    "textual.app:App._close_messages_no_wait": "(self) -> 'None'",
    "textual.app:App._refresh_truecolor_filter": "(self, theme: 'TerminalTheme') -> 'None'",
    "textual._xterm_parser:XTermParser": "(debug: 'bool' = False) -> 'None'",
    "textual.drivers.linux_driver:getincrementaldecoder": "(encoding)",
    "textual.drivers.linux_driver:LinuxDriver.run_input_thread": "(self) -> 'None'",
    "textual.drivers.linux_driver:LinuxDriver._run_input_thread": "(self) -> 'None'",
}
"""Place -> signature of a function, or type of a value; `()` stands for an object of the class."""


# -- keys ----------------------------------------------------------------------------------------


class _Key(Enum):
    ALT_ENTER = "alt+enter"


def teach_keys() -> None:
    """Teach Textual the Alt+Enter of terminals without the Kitty protocol, else an Enter."""
    sequences: dict[str, Any] = _ansi_sequences.ANSI_SEQUENCES_KEYS  # type: ignore[assignment]
    sequences.setdefault("\x1b\r", (_Key.ALT_ENTER,))


# -- narrow terminals ----------------------------------------------------------------------------

_divide = vars(content)["divide_line"]


@functools.wraps(_divide)
def _divide_line(text: str, width: int, fold: bool = True) -> list[int]:
    places: list[int] = _divide(text, max(1, width), fold)
    return places


def teach_narrowness() -> None:
    """Have Textual wrap text for one column at least. For none, which borders and paddings leave in
    a narrow terminal, it raises.
    """
    vars(content)["divide_line"] = _divide_line


# -- memory --------------------------------------------------------------------------------------

_inner_outer = StylesCache.get_inner_outer


@functools.wraps(_inner_outer)
def _get_inner_outer(cls: object, base_background: Color, background: Color) -> tuple[Style, Style]:
    del cls
    return _inner_outer(StylesCache, base_background, background)


def teach_forgetting() -> None:
    """Have Textual free the rows of widgets that are gone. Its memory of colours, which is one for
    all, has the object that asks in its keys, and so the rows of the last thousand widgets.
    """
    StylesCache.get_inner_outer = _get_inner_outer  # type: ignore[assignment]


# -- the app -------------------------------------------------------------------------------------


class OwnEnds(_App):
    """Base of an app that ends without printing its state, goes on after faults of its workers, and
    chooses its filters.
    """

    def _handle_exception(self, error: Exception) -> None:
        # Textual ends the app for whatever a worker raises.
        if isinstance(error, WorkerFailed) and self.outlives(get_current_worker(), error.error):
            return
        super()._handle_exception(error)

    def outlives(self, worker: Worker[Any], error: BaseException) -> bool:
        """Whether the app goes on without a worker, which ``error`` has ended."""
        raise NotImplementedError

    def _fatal_error(self) -> None:
        # Textual's method prints the whole state, including what the user typed.
        self._close_messages_no_wait()

    @property
    def defect(self) -> Exception | None:
        """The unexpected exception that ended the interface."""
        return self._exception

    @property
    def has_screen(self) -> bool:
        """Whether a screen is shown already."""
        return bool(self._screen_stack)

    @property
    def suspendable(self) -> bool:
        """Whether the terminal can be given back to the shell for a while."""
        return self._driver is not None and self._driver.can_suspend

    @property
    def has_terminal(self) -> bool:
        """Whether there is something to write to."""
        return self._driver is not None

    def write_to_terminal(self, sequence: str) -> None:
        """Write a control sequence at once, where there is a terminal."""
        if self._driver is not None:
            self._driver.write(sequence)
            self._driver.flush()

    def add_filter(self, last: LineFilter) -> None:
        """Have all lines pass another filter, after all others."""
        self._filters.append(last)

    def choose_truecolor(self) -> None:
        """Use the present theme for the colours that a terminal names."""
        self._refresh_truecolor_filter(self.ansi_theme)

    def choose_monochrome(self) -> None:
        """Without colour, use the filter that suits the present theme."""
        for at, known in enumerate(self._filters):
            if isinstance(known, Monochrome | NoColor):
                # Textual decides before a theme is set: the text would be black on black.
                self._filters[at] = NoColor() if self.native_ansi_color else Monochrome()


# -- layouts -------------------------------------------------------------------------------------


class Placed(_Widget):
    """Base of widgets whose size, once they are placed, asks for no other layout.

    A layout tells each widget its size, and Textual's widgets ask for another layout when that has
    changed. It finds the same sizes, since a widget of text computes its height before it is
    placed, and costs about 5 ms for each new or finished reply. Scroll bars that appear ask for a
    layout by themselves.
    """

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        """Take the size that a layout has found."""
        del layout
        return super()._size_updated(size, virtual_size, container_size, layout=False)


class EndsWorkers(_Screen):
    """Base of a screen whose workers end before its widgets, which they use, and not after them."""

    async def _message_loop_exit(self) -> None:
        self.workers.cancel_node(self)
        await super()._message_loop_exit()


class Foreseen(_Screen):
    """Base of a screen that is told before it is laid out, and before it is drawn."""

    def prepare_layout(self) -> bool:
        """A layout follows at once; whether it may not scroll."""
        raise NotImplementedError

    def wants_layout(self, changed: Collection[Widget]) -> bool:
        """Whether a layout has to come before these widgets are drawn; none: the whole screen."""
        raise NotImplementedError

    def lay_out(self) -> None:
        """Lay out now."""
        self._refresh_layout()

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        stays = self.prepare_layout()
        super()._refresh_layout(size, scroll and not stays)

    def _on_timer_update(self) -> None:
        changed = () if self._repaint_required else self._dirty_widgets
        if (self._repaint_required or changed) and self.wants_layout(changed):
            self._layout_required = True
        super()._on_timer_update()


def measure_in_next_layout(widget: Widget) -> None:
    """Have the layout that follows at once measure a widget again.

    `Widget.refresh` has the same effect for a layout that comes later.
    """
    widget._layout_updates += 1
    widget._set_dirty()
    widget.clear_cached_dimensions()
    for ancestor in widget.ancestors:
        if not isinstance(ancestor, Widget):
            break
        ancestor._clear_arrangement_cache()
        ancestor._layout_updates += 1
        if not ancestor.styles.auto_dimensions:
            break


# -- drawing without a layout --------------------------------------------------------------------


class RowsUpdate(CompositorUpdate):
    """Rows to write, each at its place."""

    def __init__(self, x: int, rows: Sequence[tuple[int, Strip]]) -> None:
        self._x, self._rows = x, rows

    def render_segments(self, console: Console) -> str:
        """The rows as text for the terminal."""
        return "".join(
            f"\x1b[{y + 1};{self._x + 1}H{strip.render(console)}" for y, strip in self._rows
        )


def draws(screen: Screen[Any]) -> bool:
    """Whether what is written now appears at once, and not with the end of a batch."""
    return not screen.app._batch_count


def is_up_to_date(screen: Screen[Any]) -> bool:
    """Whether the terminal shows what the screen's last layout has drawn."""
    return not (screen._layout_required or screen._dirty_widgets)


def rows_of(screen: Screen[Any], window: Region) -> list[Strip]:
    """The rows of a part of the screen as the last layout has drawn them, over its whole width."""
    return screen._compositor.render_strips()[window.y : window.bottom]


def write(screen: Screen[Any], x: int, rows: Sequence[tuple[int, Strip]]) -> None:
    """Write rows to the terminal."""
    update: Any = RowsUpdate(x, rows)  # Textual's hint leaves such updates out
    screen.app._display(screen, update)
