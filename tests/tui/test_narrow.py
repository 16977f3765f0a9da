"""Every screen of the chat in terminals of a few columns and rows."""

from __future__ import annotations

import asyncio

import pytest
from fake_engine import FakeEngine, Script
from narrow import go_through_narrow_sizes
from textual.widgets import Input

from localspec.chats.saver import Saver
from localspec.core.options import Options
from localspec.core.processes import children
from localspec.loading.offers import Offer, Offers
from localspec.tools.values import OfferedTool
from tui.session.open_chat import Question
from tui.session.recorder import ChatRecorder

TEXT = """\
<think>
so long a thought
</think>

A | b, 漢字 and [a link](https://example.org/long/long)

| aaaa | bbbb |
|-|-|
| 1 | 2 |

```py
x = 1
```

1. a list
> a quotation
"""


async def empty(c):
    await c.sees("Message")


async def talking(c):
    c.engine.scripts += [Script(TEXT), Script("one two three four five six seven", hold_at=1)]
    await c.ask("Hi")
    await c.pilot.press("f2", "ctrl+t", "alt+left")
    await c.type("go on")
    await c.until(lambda: c.engine.holding)
    c.session.send("waits one")
    c.session.send("waits two, of longer words here")
    tool = OfferedTool("server", "tool", "says what", {})
    answer = asyncio.get_running_loop().create_future()
    turn = c.session.chat.conversation.last
    c.session.chat.question = Question(turn, tool, '{"a": 1, "b": "a long text"}', answer)
    c.app.screen._widgets.find_bar.display = c.app.screen._widgets.pull_bar.display = True
    c.composer.insert("/c")
    await c.sees("May server/tool run?")


async def drafted(c):
    c.composer.insert("a text of several words, 漢字 among them")


async def helped(c):
    await c.type("/help")
    await c.sees("keys and commands")


async def palette(c):
    await c.pilot.press("ctrl+p")
    await c.sees("Search for commands")


async def settings(c):
    c.session.engine.options = Options()
    await c.pilot.press("ctrl+s")
    await c.sees("temperature")
    c.app.screen.query_one("#top_p", Input).value = "7"
    await c.sees("top_p must be")


async def models(c):
    c.session.engine.options = Options()
    await c.pilot.press("f4")
    await c.sees("● demo")


async def chats(c):
    c.engine.scripts.append(Script(TEXT))
    await c.ask("Hi")
    await c.pilot.press("ctrl+l")
    await c.sees("2 messages")


async def presets(c):
    await c.type("/preset")
    await c.sees("no presets yet")


async def themes(c):
    await c.type("/theme")
    await c.sees("localspec-light")


async def opened(c):
    await c.type("/open")
    await c.sees("Open chats")


async def compared(c):
    c.engine.scripts += [Script(TEXT), Script(TEXT)]
    await c.ask("Hi")
    await c.pilot.press("f3")
    await c.sees("compare speeds")


SCREENS = [
    *(empty, talking, drafted, helped, palette, settings, models, chats),
    *(presets, themes, opened, compared),
]


FACTS = {"description": "as it is by its header", "parameters": 5e6, "context": 768}
SHOWN = {
    "target": FACTS | {"licence": "mit"},
    "draft": FACTS | {"kind": "model", "mismatch": None, "same_vocabulary": True},
}


@pytest.fixture(autouse=True)
def _shelf(monkeypatch):
    """One model, of this machine."""
    demo = Offer("demo", "target.gguf", 3_288_192, "draft.gguf", 970_816, True, "a toy", "MIT")
    monkeypatch.setattr("tui.screens.models.offers", lambda _: Offers((demo,)))
    monkeypatch.setattr(children, "ask", lambda *_: SHOWN)


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.__name__)
async def test_no_screen_ends_the_chat_in_a_narrow_or_low_terminal(chat, tmp_path, screen):
    recorder = ChatRecorder(Saver(tmp_path / "chats.db"), "demo")
    async with chat(engine=FakeEngine([]), size=(100, 40), recorder=recorder) as c:
        await screen(c)
        await go_through_narrow_sizes(c.pilot)
        assert c.app.is_running
        assert c.app.defect is None
