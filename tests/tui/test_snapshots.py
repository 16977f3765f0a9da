"""Every screen compared with its snapshot: dark at two sizes, some of them in the light theme too.

A widget that is missing or a colour that changed fails here. Where that was meant:
``UPDATE_SNAPSHOTS=1 python -m pytest tests/tui/test_snapshots.py``, then look at the difference.
"""

import dataclasses
import os
import time
import types

import pytest
from fake_engine import INFO, FakeEngine, Script
from pictures import FOLDER, UPDATE, compare, picture
from textual.widgets import Input, TextArea

from localspec.chats.saver import Saver
from localspec.chats.store import ChatStore
from localspec.chats.values import Chat, ChatInfo, ChatMessage
from localspec.core.events import Speculation, Speedup
from localspec.core.options import Options
from localspec.core.processes import children
from localspec.loading.offers import Offer, Offers
from localspec.models.memory import ask_machine
from localspec.models.memory.machine import Memory
from tui.session.recorder import ChatRecorder

pytestmark = pytest.mark.skipif(not hasattr(time, "tzset"), reason="dates of one time zone")

SIZES = {"80x24": (80, 24), "120x40": (120, 40)}
TEXT = """\
The text is **exact**: see `match` and [the paper](https://example.org).

1. draft *K* tokens
2. score them

```python
def keep(p, q, u):
    return u < p / q  # the rule
```

| K | speed |
|--:|---|
| 4 | 1.9× |

> Never slower.
"""
FASTER = Speedup(1.43, 0.08)
PROSE = "Once upon a time there was a little fox. She liked to play in the forest all day long. "


async def empty(c):
    await c.sees("Everything runs on this machine")


async def reply(c):
    c.engine.scripts.append(Script(TEXT, speedup=FASTER))
    await c.ask("Why is [b]this[/b] exact?")
    await c.sees("Never slower")


async def streaming(c):
    c.engine.scripts.append(Script(PROSE * 3, hold_at=12))
    await c.ask_and_hold("Tell me a story.")
    await c.type("And another one.")
    await c.sees("sent next")


async def coloured(c):
    c.engine.scripts.append(Script(PROSE))
    await c.ask("Tell me a story.")
    await c.pilot.press("ctrl+t")
    await c.sees("Once upon")


async def token(c):
    await coloured(c)
    await c.pilot.press("alt+left", "alt+left")
    await c.sees("p 0.750")


async def details(c):
    c.engine.scripts.append(Script(PROSE, speedup=FASTER))
    await c.pilot.press("f2")
    await c.pilot.pause()  # laid out: what is sent in the same moment is not scrolled to
    await c.ask("Tell me a story.")
    await c.sees("draft 4.0,")


async def compared(c):
    c.engine.scripts += [Script(PROSE), Script(PROSE.replace("forest", "garden"))]
    await c.ask("Tell me a story.")
    await c.pilot.press("f3")
    await c.sees("logits apart")
    await c.sees("compare speeds")


async def helped(c):
    await c.type("/help")
    await c.sees("keys and commands")


async def listed(c):
    await c.pilot.press("ctrl+l")
    await c.sees("A list of animals")


async def suggested(c):
    await c.pilot.press("/", "c")
    await c.sees("/compare")


async def parked(c):
    speculation = Speculation("parked", "plain decoding is faster here")
    c.engine.scripts.append(Script(PROSE, speculation=speculation))
    await c.ask("Tell me a story.")
    await c.sees("not drafting: plain decoding is faster here")


async def thought(c):
    c.engine.scripts.append(Script("<think>\nfirst this\n</think>\n\nThe answer."))
    await c.ask("Think.")
    await c.sees("thought, ")


async def dead(c):
    c.engine.scripts.append(Script(PROSE, hold_at=4))
    await c.ask_and_hold("Tell me a story.")
    c.engine.die()
    await c.sees("The conversation is saved")


async def picked(c):
    c.session.engine.options = Options()
    await c.pilot.press("f4")
    await c.sees("● demo")
    await c.sees("by its header")


async def drafts(c):
    c.session.engine.options = Options()
    c.session.engine.info = dataclasses.replace(INFO, target_bytes=10**7)
    await c.pilot.press("f4")
    await c.sees("● demo")
    await c.pilot.press("tab", "down", "down")
    await c.sees("same vocabulary")


async def pullable(c):
    await c.type("/models huge")
    await c.sees("too big")
    await c.pilot.press("enter")
    await c.sees("Enter again")


async def settings(c):
    c.session.engine.options = Options(drafter=("suffix", "model"))
    await c.pilot.press("ctrl+s")
    await c.sees("temperature")
    c.app.screen.query_one("#top_p", Input).value = "7"
    await c.sees("top_p must be")


async def several(c):
    c.engine.scripts.append(Script(PROSE * 3, hold_at=12))
    await c.ask_and_hold("Tell me a story.")
    await c.pilot.press("ctrl+n")
    await c.type("And here?")
    await c.sees("sent after the reply in Tell me a story.")


SCREENS = [
    picked,
    drafts,
    pullable,
    settings,
    several,
    empty,
    reply,
    streaming,
    coloured,
    token,
    details,
    compared,
    helped,
    listed,
    suggested,
    parked,
    thought,
    dead,
]
LIGHT = ((reply, "120x40"), (token, "120x40"), (compared, "120x40"), (settings, "80x24"))
"""Screens that together show every colour; the light theme differs by its palette alone."""


OFFERS = (
    Offer("demo", "target.gguf", 3_288_192, "draft.gguf", 970_816, True, "a toy", "MIT"),
    Offer("/models/my-own-7b-Q4_K_M.gguf", "/models/my-own-7b-Q4_K_M.gguf", 4_400_000_000),
    Offer(
        "huge",
        "org/Huge-GGUF : huge.gguf",
        43_000_000_000,
        "org/Small-GGUF : small.gguf",
        900_000_000,
        about="larger than most machines",
        licence="apache-2.0",
        exact=False,
        installed=False,
        pullable=True,
        traps=("its template needs a system message",),
    ),
)
FACTS = {"description": "as it is by its header", "parameters": 5e6, "context": 768}
SHOWN = {
    "target": FACTS | {"licence": "mit"},
    "draft": FACTS | {"kind": "model", "mismatch": None, "same_vocabulary": True},
}


@pytest.fixture(autouse=True)
def _shelf(monkeypatch):
    """The same models on every machine."""
    monkeypatch.setattr("tui.screens.models.offers", lambda _: Offers(OFFERS))
    monkeypatch.setattr(ask_machine, "memory", lambda: Memory((), 16 * 10**9, 16 * 10**9))
    monkeypatch.setattr(children, "ask", lambda *_: SHOWN)


@pytest.fixture(autouse=True)
def _steady_cursor(monkeypatch):
    """A cursor is drawn at all times. The chat lets it blink again after a reply, so that to switch
    it off once would not last.
    """
    monkeypatch.setattr(TextArea, "_toggle_cursor_blink_visible", lambda _: None)
    monkeypatch.setattr(Input, "_toggle_cursor", lambda _: None)


@pytest.fixture
def recorder(tmp_path, monkeypatch):
    """Two chats with times of their own, and a clock that stands still for the figures."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr("tui.session.meter.time", types.SimpleNamespace(monotonic=lambda: 0.0))
    with ChatStore(tmp_path / "chats.db") as store:
        for i, title in enumerate(["A list of animals", "What is 2 + 3?"]):
            when = 1_760_000_000.0 + 86_400 * i
            info = ChatInfo(f"{i}23456789a", title, True, None, "demo", None, when, when)
            store.put_chats([Chat(info, (ChatMessage(i + 1, None, "user", title, when),))])
    yield ChatRecorder(Saver(tmp_path / "chats.db"), "demo")
    monkeypatch.undo()
    time.tzset()


async def still(c, times=4):
    """Wait until nothing changes any more."""
    before, same = "", 0
    while same < times:
        c.app.screen.refresh(layout=True)
        await c.pilot.pause(0.06)
        now = picture(c.app)
        same, before = (same + 1 if now == before else 0), now


async def difference(c, name, seconds=60.0):
    """The differences from the snapshot when the screen has settled.

    On a busy machine the screen may be idle for a moment before everything is drawn, so a
    difference counts only where it stays.
    """
    if os.environ.get(UPDATE):
        await still(c)
        return compare(c.app, name)
    end = time.monotonic() + seconds
    while (different := compare(c.app, name)) is not None and time.monotonic() < end:
        await c.pilot.pause(0.02)
    if different is None:
        c.app.screen.refresh(layout=True)
        await c.pilot.pause()
    return compare(c.app, name)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.__name__)
async def test_a_screen_looks_as_it_did(chat, recorder, screen, size):
    async with chat(engine=FakeEngine([]), size=SIZES[size], recorder=recorder) as c:
        await screen(c)
        different = [await difference(c, f"{screen.__name__}-{size}-dark")]
        if (screen, size) in LIGHT:
            c.app.theme = "localspec-light"
            different.append(await difference(c, f"{screen.__name__}-{size}-light"))
    assert different.count(None) == len(different), "\n".join(filter(None, different))


@pytest.mark.skipif(bool(os.environ.get(UPDATE)), reason="they are being made")
def test_no_snapshot_is_left_over():
    dark = {f"{screen.__name__}-{size}-dark.txt" for screen in SCREENS for size in SIZES}
    names = dark | {f"{screen.__name__}-{size}-light.txt" for screen, size in LIGHT}
    assert {path.name for path in FOLDER.glob("*.txt")} == names


async def test_a_changed_colour_and_a_missing_widget_are_seen(chat):
    async with chat() as c:
        await still(c)
        before = picture(c.app)
        c.app.theme = "localspec-light"
        await c.until(lambda: picture(c.app) != before)
        light = picture(c.app)
        await c.app.screen.query_one("StatsBar").remove()
        await c.until(lambda: picture(c.app) != light)


async def test_no_picture_depends_on_when_a_cursor_blinks(chat):
    async with chat(Script("Yes.")) as c:
        await c.ask("Really?")
        await still(c)
        before = picture(c.app)
        assert c.composer.cursor_blink
        c.composer.blink_timer._callback()  # half a second later
        await c.pilot.pause()
        c.app.screen.refresh(layout=True)
        await c.pilot.pause()
        assert picture(c.app) == before
