"""Every screen of the interface in six sizes and three themes, on one HTML page.

The program is the real one, with the embedded pair as engine, driven by keys without a terminal;
settings and chats are in a folder that is removed at the end. Themes and sizes are changed while a
screen is open, as a user would.
"""

from __future__ import annotations

import argparse
import asyncio
import html
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.chats.saver import Saver
from localspec.chats.store import ChatStore
from localspec.chats.values import Chat, ChatInfo, ChatMessage, new_chat_id, new_message_id
from localspec.core.options import Options
from localspec.core.sampling_params import Sampling
from localspec.engine.client import EngineClient
from tui.app import ChatApp
from tui.session.engine_slot import Phase
from tui.session.recorder import ChatRecorder
from tui.session.settings import Settings

if TYPE_CHECKING:
    from rich.style import Style
    from textual.pilot import Pilot
    from textual.strip import Strip

SIZES = ("40x12", "60x16", "80x24", "100x30", "140x40", "200x50")
THEMES = ("localspec-dark", "localspec-light", "ansi-dark")
_WAIT_SECONDS = 120.0
_MARKDOWN = """\
<think>
The question is about exactness, so the rule first.
</think>

The text is **exact**: see `match` and [the paper](https://arxiv.org/abs/2211.17192).

1. draft *K* tokens
2. score them in one pass

```python
def keep(p: float, q: float, u: float) -> bool:
    return u < p / q  # the rule of rejection sampling
```

| K | tok/s | faster |
|--:|--:|---|
| 0 | 31 | |
| 4 | 58 | 1.9× |

> Never slower than plain decoding.

- [x] read
- [ ] understood
"""
_LONG = "\n".join(f"line {n} of a text that was pasted" for n in range(1, 30))

Look = Callable[["Gallery"], Awaitable[None]]


class Gallery:
    """The running program, and what the screens need of it."""

    def __init__(self, app: ChatApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot
        self.session = app.session

    async def until(self, predicate: Callable[[], bool], what: str) -> None:
        """Let the program run until a condition is true."""
        end = time.monotonic() + _WAIT_SECONDS
        while not predicate():
            if time.monotonic() > end:
                sys.exit(f"gallery: waited too long for {what}")
            await self.pilot.pause(0.05)

    async def ask(self, text: str) -> None:
        """Send a message and wait for the whole reply."""
        turns = self.session.chat.conversation.turns
        before = len(turns)
        self.session.send(text)
        await self.until(lambda: len(turns) == before + 2 and bool(turns[-1].end), "a reply")
        await self.until(lambda: self.session.idle, "the engine")

    async def press(self, *keys: str, rest: float = 0.8) -> None:
        """Press keys and let what they start come to rest."""
        await self.pilot.press(*keys)
        await self.pilot.pause(rest)

    def strips(self) -> list[Strip]:
        """The rows of the screen."""
        compositor = self.app.screen._compositor  # noqa: SLF001 - as Textual makes its pictures
        return list(compositor.render_strips())


async def _welcome(g: Gallery) -> None:
    await g.pilot.pause(0.5)


async def _replies(g: Gallery) -> None:
    await g.ask("What is 2 + 3?")
    await g.ask("Write a short story about a fox.")


async def _colours(g: Gallery) -> None:
    await g.press("ctrl+t")
    await g.press("alt+left", "alt+left")


async def _details(g: Gallery) -> None:
    await g.press("escape", "ctrl+t", "f2")


async def _compare(g: Gallery) -> None:
    await g.press("f2", "f3", rest=3.0)


async def _markdown(g: Gallery) -> None:
    await g.press("escape", "ctrl+l")
    await g.press(*"exact", rest=1.0)
    await g.press("enter", rest=1.5)


async def _pointed(g: Gallery) -> None:
    await g.press("f7")


async def _find(g: Gallery) -> None:
    await g.press("ctrl+f", *"pass")


async def _chats(g: Gallery) -> None:
    await g.press("escape", "ctrl+l", rest=1.2)


async def _searched(g: Gallery) -> None:
    await g.press(*"rule", rest=1.2)


async def _models(g: Gallery) -> None:
    await g.press("escape", "f4", rest=3.0)


async def _settings(g: Gallery) -> None:
    await g.press("escape", "ctrl+s", rest=1.2)


async def _help(g: Gallery) -> None:
    await g.press("escape", "f1", rest=1.2)


async def _suggestions(g: Gallery) -> None:
    await g.press("escape", "/", "c")


async def _failure(g: Gallery) -> None:
    await g.press(*["backspace"] * 2, *"/export /dev/null/chat.md", "enter", rest=1.2)


async def _stopped(g: Gallery) -> None:
    pid = g.session.engine.client.pid
    assert pid is not None
    os.kill(pid, 9)
    await g.until(lambda: g.session.engine.phase is Phase.DEAD, "the end of the engine")
    await g.pilot.pause(1.0)


SCREENS: dict[str, Look] = {
    "welcome": _welcome,
    "replies": _replies,
    "colours": _colours,
    "details": _details,
    "compare": _compare,
    "markdown": _markdown,
    "link": _pointed,
    "find": _find,
    "chats": _chats,
    "searched": _searched,
    "models": _models,
    "settings": _settings,
    "help": _help,
    "suggestions": _suggestions,
    "failure": _failure,
    "stopped": _stopped,
}
"""In the order in which they are visited: each begins where the one before ended."""


def _stored(path: Path) -> None:
    """Two saved chats to find."""
    with ChatStore(path) as store:
        for title, texts in (
            ("Rivers and lakes of the north", ["Which is the longest?", "The Torne."] * 3),
            ("Why it is exact", ["Why is this exact?", _MARKDOWN, _LONG, "So many lines."]),
        ):
            messages: list[ChatMessage] = []
            for place, text in enumerate(texts):
                parent = messages[-1].id if messages else None
                role, end = ("assistant", "stop") if place % 2 else ("user", None)
                messages.append(
                    ChatMessage(new_message_id(parent), parent, role, text, time.time(), end)  # type: ignore[arg-type]
                )
            now = time.time()
            info = ChatInfo(
                new_chat_id(), title, True, "Be brief.", "demo", messages[-1].id, now, now
            )
            store.put_chat(Chat(info, tuple(messages)))


async def pictures(
    home: Path, screens: Sequence[str], sizes: Sequence[str], themes: Sequence[str]
) -> dict[str, dict[tuple[str, str], list[Strip]]]:
    """The rows of every screen, by size and theme."""
    path = home / "chats.db"
    _stored(path)
    options = Options()
    engine = EngineClient(options, log_dir=home)
    app = ChatApp(
        engine,
        Settings(Sampling(temperature=0.0), 64, 1),
        name=options.model,
        recorder=ChatRecorder(Saver(path), "demo"),
        options=options,
    )
    found: dict[str, dict[tuple[str, str], list[Strip]]] = {}
    async with app.run_test(size=(100, 30)) as pilot:
        gallery = Gallery(app, pilot)
        await gallery.until(lambda: gallery.session.engine.phase is Phase.READY, "the model")
        for name, look in SCREENS.items():
            await look(gallery)
            if name not in screens:
                continue
            found[name] = {}
            for size in sizes:
                width, height = (int(part) for part in size.split("x"))
                await pilot.resize_terminal(width, height)
                await pilot.pause(0.4)
                for theme in themes:
                    app.theme = theme
                    await pilot.pause(0.3)
                    found[name][size, theme] = gallery.strips()
            app.theme = themes[0]
            await pilot.resize_terminal(100, 30)
            await pilot.pause(0.4)
            print(f"gallery: {name}", file=sys.stderr, flush=True)
    return found


class Page:
    """The page; styles that occur often are classes."""

    def __init__(self) -> None:
        self._classes: dict[str, str] = {}
        self._parts: list[str] = []

    def heading(self, name: str) -> None:
        """Begin a screen."""
        self._parts.append(f"<h2 id='{name}'>{name}</h2>")

    def picture(self, size: str, theme: str, strips: Iterable[Strip]) -> None:
        """Add the rows of a screen."""
        rows = []
        for strip in strips:
            row = ""
            for text, style, _ in strip:
                name = self._class(style)
                row += f"<b class={name}>{html.escape(text)}</b>" if name else html.escape(text)
            rows.append(row)
        text = "\n".join(rows)
        self._parts.append(
            f"<figure><figcaption>{size} {theme}</figcaption><pre>{text}</pre></figure>"
        )

    def _class(self, style: Style | None) -> str:
        css = "" if style is None else _css(style)
        return self._classes.setdefault(css, f"s{len(self._classes)}") if css else ""

    def __str__(self) -> str:
        styles = "".join(f".{name}{{{css}}}" for css, name in self._classes.items())
        links = " ".join(f"<a href='#{name}'>{name}</a>" for name in SCREENS)
        head = (
            "<!doctype html><meta charset=utf-8><title>localspec: gallery</title><style>"
            "body{font-family:sans-serif;background:#888}figure{display:inline-block;margin:8px;"
            "vertical-align:top}pre{font:12px/1.25 'DejaVu Sans Mono',Menlo,Consolas,monospace;"
            "background:#000;color:#ccc;margin:0;padding:4px}b{font-weight:normal}"
            f"nav{{position:sticky;top:0;background:#888}}{styles}</style><nav>{links}</nav>"
        )
        return head + "\n".join(self._parts)


def _css(style: Style) -> str:
    """The style of a cell."""
    front, back = (
        None if colour is None or colour.is_default else colour.get_truecolor().hex
        for colour in (style.color, style.bgcolor)
    )
    if style.reverse:
        front, back = back or "#000", front or "#ccc"
    lines = " ".join(["underline"] * bool(style.underline) + ["line-through"] * bool(style.strike))
    found = {
        "color": front,
        "background": back,
        "font-weight": "bold" if style.bold else None,
        "font-style": "italic" if style.italic else None,
        "text-decoration": lines or None,
        "opacity": ".6" if style.dim else None,
    }
    return ";".join(f"{name}:{value}" for name, value in found.items() if value)


def main() -> None:
    """Read the command line and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="the page; by default in the temporary folder")
    parser.add_argument("--screens", default=",".join(SCREENS), help="names with commas between")
    parser.add_argument("--sizes", default=",".join(SIZES), help="columns x rows")
    parser.add_argument("--themes", default=",".join(THEMES))
    arguments = parser.parse_args()
    lists = [getattr(arguments, name).split(",") for name in ("screens", "sizes", "themes")]
    unknown = set(lists[0]) - SCREENS.keys()
    if unknown:
        parser.error(f"no screen {', '.join(sorted(unknown))}; there are {', '.join(SCREENS)}")
    out = arguments.out or Path(tempfile.gettempdir()) / "localspec-gallery.html"
    with tempfile.TemporaryDirectory() as home:
        os.environ["LOCALSPEC_HOME"] = home
        found = asyncio.run(pictures(Path(home), *lists))
    page = Page()
    for name, by_look in found.items():
        page.heading(name)
        for (size, theme), strips in by_look.items():
            page.picture(size, theme, strips)
    out.write_text(str(page), encoding="utf-8")
    print(out)


if __name__ == "__main__":
    main()
