"""The race of drafting against plain decoding, side by side; typing leaves it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widgets import Static

from localspec.core.events import Token
from localspec.core.units import size
from localspec.demo.race import PROMPT, Lane, Race
from localspec.demo.speeds import advice
from localspec.loading.offers import Offer
from tui.input import keymap
from tui.render.text import plain
from tui.screens.sized import SizedScreen
from tui.session.token_runs import kind_of
from tui.terminal.resources import RefreshRate
from tui.widgets.bars import Bar, LegendBar
from tui.widgets.document import TextFlow
from tui.widgets.key_bar import KeyBar

_ABOUT = {
    False: "The model works alone: all its weights are read for every token.",
    True: "A small model guesses the next tokens, and the model checks all guesses in one pass. "
    "Coloured tokens were guessed.",
}
"""The text of a side until its first token, without and with drafting."""


@dataclass(frozen=True, slots=True)
class TakeBest:
    """Use this pair, and download it first where it is not here."""

    offer: Offer


@dataclass(frozen=True, slots=True)
class ListModels:
    """List all models."""


@dataclass(frozen=True, slots=True)
class Again:
    """Race once more."""


Left = TakeBest | ListModels | Again
"""How the race was left; None is the way back to the chat, also where it was left by typing."""


_HIGH = 20
"""Rows from which there is room for all of it; below, for one text and the result."""
_PAUSE_S = 0.05
"""Seconds without a key after which those that came in at once are complete."""


class Side(Vertical):
    """One side: its speed above its text."""

    def __init__(self, lane: Lane) -> None:
        super().__init__()
        self._lane = lane
        self._shown = 0

    def compose(self) -> ComposeResult:
        """The title above the text."""
        yield Bar(classes="side")
        with VerticalScroll(can_focus=False):
            yield TextFlow("side-text")

    def on_mount(self) -> None:
        """Say what will be shown here."""
        self.query_one(TextFlow).reset(Content.styled(_ABOUT[self._lane.draft], "$quiet"))

    def show(self, speed: float, *, running: bool, front: bool, sure: bool) -> None:
        """Show the tokens that are new, and the speed so far, quietly until it is sure.

        ``front``: this is the side whose text is shown where there is room for one.
        """
        self.set_class(front, "-front")
        new = self._lane.tokens[self._shown :]
        if new:
            if not self._shown:
                self.query_one(TextFlow).reset(Content(""))
            self.query_one(TextFlow).add(Content.assemble(*self._parts(new)))
            self._shown += len(new)
            self.query_one(VerticalScroll).scroll_end(animate=False)
        now = f"  {speed:.1f} tokens/s" if speed else ""
        style = "bold" if sure else "$quiet"
        mark = " ▸ " if running else "   "
        self.query_one(Bar).show(
            Content.assemble(
                (mark, "$text-accent"), (self._lane.name, "bold $primary"), (now, style)
            )
        )

    def _parts(self, tokens: Iterable[Token]) -> Iterable[tuple[str, str]]:
        """Drafted tokens in the colours of their origins."""
        for token in tokens:
            yield plain(token.text), kind_of(token).style if self._lane.draft else ""


class RaceScreen(SizedScreen[Left | None], ModalScreen[Left | None]):
    """Shows a race while it is made, then what to do next."""

    BINDINGS = keymap.of_screen("race")
    HORIZONTAL_BREAKPOINTS = [(0, "-stacked"), (70, "-beside")]  # noqa: RUF012 - Textual's type
    VERTICAL_BREAKPOINTS = [(0, "-low"), (_HIGH, "-high")]  # noqa: RUF012 - Textual's type

    def __init__(self, race: Race, models_key: str, take_key: str, again_key: str) -> None:
        """The keys are as users write them."""
        super().__init__()
        self._race = race
        self._keys = (models_key, take_key)
        self._again_key = again_key
        self._offered = False
        self._texts: tuple[Content, Content] | None = None
        """Title and result that are shown."""
        self._typed: list[events.Key | events.Paste] = []
        """What belongs to the composer, with which the screen is left."""

    def compose(self) -> ComposeResult:
        """The question above the two sides, the result below them."""
        self.take_size(self.app.size)
        yield Static(self._title(), markup=False, id="race-title")
        with Container(id="sides"):
            yield Side(self._race.plain)
            yield Side(self._race.drafted)
        yield LegendBar()
        yield Static(markup=False, id="race-result")
        yield KeyBar()

    def on_mount(self) -> None:
        """Follow the race."""
        self._result = self.query_one("#race-result", Static)
        self._rate = RefreshRate()
        self._rate.leave_processors(busy=True)  # both sides are measured meanwhile
        self._timer = self.set_interval(self._rate.interval, self._tick)
        self._refresh()

    def fit(self, size: Size) -> None:
        """Say more or less."""
        super().fit(size)
        self.call_after_refresh(self._refresh)

    def _tick(self) -> None:
        if self._race.over or self._rate.due():
            self._refresh()

    def _title(self) -> Content:
        grown = f", with {size(self._race.n_bytes)} of weights" if self._race.n_bytes else ""
        about = f"the same question twice{grown}: “{PROMPT}”"
        return Content.assemble(("Race  ", "bold $primary"), (about, "$quiet"))

    def _refresh(self) -> None:
        race = self._race
        over = race.over  # read first, or the last tokens could be missed
        begun = race.drafted if race.drafted.tokens else race.plain
        for side, lane in zip(self.query(Side), (race.plain, race.drafted), strict=True):
            running = race.running is lane
            speed = race.speed(draft=lane.draft)
            side.show(speed, running=running, front=lane is begun, sure=race.sure)
        texts = self._title(), self._outcome()
        if texts != self._texts:
            self._texts = texts
            self.query_one("#race-title", Static).update(texts[0])
            self._result.update(texts[1])
        if over and not self._offered:
            self._offered = True
            self.refresh_bindings()
            self._timer.pause()

    def _outcome(self) -> Content:
        race, low = self._race, self.size.height < _HIGH
        again = f"; {self._again_key} tries again" if race.over and race.doubtful else ""
        lines = [Content.styled(plain(race.status + again), "$text-accent")]
        if race.over and race.failure is None and not low:
            models, take = self._keys
            lines.append(Content(plain(advice(race.best, race.n_bytes, race.kernels))))
            if race.best is not None:
                offer = race.best.offer
                verb = "loads it" if offer.installed else "downloads it from the Hugging Face Hub"
                keys = f"{take} {verb}, {models} lists all models; or type to chat with the toy."
                lines.append(Content.styled(plain(keys), "$quiet"))
        elif race.over and race.best is not None:
            best = race.best
            lines.append(Content(plain(f"Best here: {best.offer.name}, {best.speed.words}.")))
        return Content("\n").join(lines)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the best model once it is known and the race is over."""
        del parameters
        if self._typed:
            return False
        if action == "again":
            return self._race.over
        return action != "take" or (self._race.over and self._race.best is not None)

    def on_key(self, event: events.Key) -> None:
        """Leave by typing."""
        if self._typed or event.is_printable or not self.is_current:
            event.stop()
            self._leave_with(events.Key(event.key, event.character))

    def on_paste(self, event: events.Paste) -> None:
        """Leave by pasting."""
        event.stop()
        self._leave_with(events.Paste(event.text))

    def _leave_with(self, event: events.Key | events.Paste) -> None:
        """Leave once no more keys come in at once, with all that was typed, in its order."""
        if not self.is_current:  # it was left just now
            self.app.post_message(event)
            return
        self._typed.append(event)
        if len(self._typed) == 1:
            self._leave_unless_more_than(0)

    def _leave_unless_more_than(self, heard: int) -> None:
        """Leave, or wait for a pause if more has come in."""
        now = len(self._typed)
        if now > heard:
            self.set_timer(_PAUSE_S, lambda: self._leave_unless_more_than(now))
            return
        self.dismiss(None)
        for event in self._typed:
            self.app.post_message(event)

    def action_leave(self) -> None:
        """Back to the chat; a running race is stopped."""
        self.dismiss(None)

    def action_again(self) -> None:
        """Race once more."""
        self.dismiss(Again())

    def action_models(self) -> None:
        """List all models."""
        self.dismiss(ListModels())

    def action_take(self) -> None:
        """Use the best model for this machine."""
        if self._race.best is not None:
            self.dismiss(TakeBest(self._race.best.offer))
