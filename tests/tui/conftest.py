import contextlib
import sys
from pathlib import Path

import pytest
from textual.css import stylesheet
from waiting import PATIENCE, until_so

sys.path.append(str(Path(__file__).parent))  # for fake_engine, here and in the tests

from fake_engine import FakeEngine
from pictures import strips

from localspec.core.logits import Sampling
from localspec.core.processes import children
from tui.app import ChatApp
from tui.screens.chat import ChatScreen
from tui.session.session_engine import Phase
from tui.session.settings import Settings
from tui.terminal import desktop


async def wait_until(pilot, predicate, seconds=PATIENCE, **said):
    """Let the app run until something is so."""
    await until_so(predicate, seconds, pause=pilot.pause, **said)


class Chat:
    """The running app with a fake engine, and words for what tests do with it."""

    def __init__(self, app, engine, pilot):
        self.app, self.engine, self.pilot = app, engine, pilot
        self.session = app.session

    async def until(self, predicate, seconds=PATIENCE):
        await wait_until(self.pilot, predicate, seconds)

    async def ready(self):
        """Nothing happens any more, and what happened last is shown and laid out."""
        changing = self.app.screen_stack[0].transcript.changing
        await self.until(
            lambda: (
                self.session.engine.phase is Phase.READY
                and self.session.idle
                and not changing.locked()
            )
        )
        await self.pilot.pause()

    async def settled(self):
        """A whole reply is shown with its figures below it, and nothing moves any more."""
        await self.sees("tok/s")
        await self.idle()
        await self.pilot.pause()

    async def idle(self):
        """Wait until the refresh timer of the chat is paused: nothing is drawn by itself."""
        screen = self.app.screen_stack[0]
        await self.until(lambda: not screen._timer._active.is_set())

    async def sees(self, text):
        """Wait until a text stands on the screen."""

        def instead():
            return f"{text!r} is not on {self.app.screen!r}:\n{self.screen_text}"

        await wait_until(self.pilot, lambda: text in self.screen_text, instead=instead)

    async def leave(self):
        """Close the screen over the chat."""
        await self.pilot.press("escape")
        await self.until(lambda: self.app.screen is self.app.screen_stack[0])

    async def type(self, text):
        self.composer.text = ""
        self.composer.insert(text)
        await self.pilot.press("enter")
        await self.until(lambda: not self.composer.text)

    async def ask(self, text):
        """Send and wait for the whole reply."""
        before = len(self.replies)
        await self.type(text)
        await self.until(lambda: len(self.replies) > before and self.replies[-1].end)
        await self.ready()

    async def ask_and_hold(self, text):
        """Send and wait until the script holds and the screen has caught up."""
        await self.type(text)
        await self.until(lambda: self.engine.holding)
        await self.until(lambda: self.replies[-1].text.split()[-1] in self.screen_text)

    @property
    def composer(self):
        return self.app.screen_stack[0].query_one("Composer")

    @property
    def replies(self):
        return [t for t in self.session.chat.conversation.turns if t.role == "assistant"]

    @property
    def stats(self):
        return str(self.app.screen_stack[0].query_one("StatsBar").content)

    @property
    def flowing_text(self):
        """The text on the screen in one line, without the bars before errors."""
        return " ".join(self.screen_text.replace("▌", " ").split())

    @property
    def screen_text(self):
        """The text on the screen, line by line."""
        if isinstance(self.app.screen, ChatScreen):
            self.app.screen.catch_up()  # rows drawn without a layout are not in Textual's picture
        rows = strips(self.app)
        lines = ["".join(segment.text for segment in row).rstrip() for row in rows]
        return "\n".join(lines)


@pytest.fixture(scope="session", autouse=True)
def _style_sheets_are_parsed_once():
    """And not for each app: that is a sixth of its start."""
    known, parsed = {}, {}
    tokenize, parse = stylesheet.tokenize_values, stylesheet.parse

    def tokens_of(variables):
        key = frozenset(variables.items())
        if key not in known:
            known[key] = tokenize(variables)
        return known[key]

    def rules_of(*source, variable_tokens, **more):
        # The tokens of equal variables are one object, which stays.
        key = (*source, id(variable_tokens), *sorted(more.items()))
        if key not in parsed:
            parsed[key] = list(parse(*source, variable_tokens=variable_tokens, **more))
        return parsed[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stylesheet, "tokenize_values", tokens_of)
        patch.setattr(stylesheet, "parse", rules_of)
        yield


@pytest.fixture(autouse=True)
def _no_clipboard(monkeypatch):
    """The clipboard of the person who runs the tests is left alone."""
    monkeypatch.setattr(desktop, "copy", lambda _: None)


@pytest.fixture(autouse=True)
def outlived(monkeypatch):
    """What workers raised and the app has outlived: an error, unless the test takes it out."""
    found, outlives = [], ChatApp.outlives

    def noted(app, worker, error):
        goes_on = outlives(app, worker, error)
        if goes_on:
            found.append(error)
        return goes_on

    monkeypatch.setattr(ChatApp, "outlives", noted)
    yield found
    for error in found:
        raise error


@pytest.fixture
def known(monkeypatch):
    """Every name is that of a model here: nobody looks into files."""
    monkeypatch.setattr(children, "ask", lambda *_: {})


@pytest.fixture
def chat():
    """Opens the app: ``async with chat(Script(...), size=(100, 40)) as c``."""

    @contextlib.asynccontextmanager
    async def start(*scripts, size=(100, 40), engine=None, ready=True, **more):
        engine = engine or FakeEngine(list(scripts))
        app = ChatApp(engine, Settings(Sampling(), seed=1), name="demo", **more)
        async with app.run_test(size=size) as pilot:
            c = Chat(app, engine, pilot)
            if ready:
                await c.ready()
            yield c
            engine.go.set()

    return start
