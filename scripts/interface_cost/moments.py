"""What shows much at once: long texts, resizing, other screens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from interface_cost.replay import HISTORY
from interface_cost.terminal import COLUMNS, resize


def moments(app: Any) -> dict[str, Callable[[], Awaitable[None]]]:
    """What is done, by the name it has in the table, in this order."""
    from tui.conversation import Turn
    from tui.widgets.chat_log import ChatLog
    from tui.widgets.document import StreamedMarkdown

    chat = app.screen
    log = chat.query_one(ChatLog)

    def reply(text: str) -> Turn:
        turn = Turn("assistant", text, end="stop")
        turn.runs.extend(text)
        return turn

    async def show(*turns: Turn) -> None:
        with app._context():  # noqa: SLF001 - as if a key had been pressed
            await log.show_turns(turns)
        await asyncio.sleep(0.1)
        while not all(part.settled for part in chat.query(StreamedMarkdown)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def sizes() -> None:
        for columns in (100, 80, COLUMNS):
            resize(columns)
            await asyncio.sleep(0.4)

    async def opened(key: str) -> None:
        app.simulate_key(key)
        while app.screen is chat:  # noqa: ASYNC110 - from outside
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)

    async def left() -> None:
        app.simulate_key("escape")
        while app.screen is not chat:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)

    async def helped() -> None:
        app.simulate_key("f1")
        await asyncio.sleep(0.4)

    code = "```python\n" + "total = add(first, second)  # sum\n" * 10_000 + "```\n"
    prose = "The little fox went into the *forest* and met the old bear. " * 4 + "\n\n"
    long = [Turn("user", "An earlier question"), reply(HISTORY)] * 150
    return {
        "switch to a chat of 300 messages": lambda: show(*long),
        "resize it, three times": sizes,
        "show the help": helped,
        "open the settings, the first time": lambda: opened("ctrl+s"),
        "leave them": left,
        "open them again": lambda: opened("ctrl+s"),
        "leave them again": left,
        "open the picker, the first time": lambda: opened("f4"),
        "leave it": left,
        "open it again": lambda: opened("f4"),
        "leave it again": left,
        "open a reply of 10,000 lines of code": lambda: show(reply(code)),
        "resize that, three times": sizes,
        "open a reply of 2,000 paragraphs": lambda: show(reply(prose * 2000)),
        "resize this, three times": sizes,
    }
