"""Actions that show much at once: long texts, resizing, other screens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from benches.interface_cost.replay import HISTORY
from benches.interface_cost.terminal import COLUMNS, resize

_CODE = "```python\n" + "total = add(first, second)  # sum\n" * 10_000 + "```\n"
_PROSE = ("The little fox went into the *forest* and met the old bear. " * 4 + "\n\n") * 2000


def moments(app: Any) -> dict[str, Callable[[], Awaitable[None]]]:
    """The actions in order, by their names in the table."""
    person = _Person(app)
    return {
        "switch to a chat of 300 messages": lambda: person.switches(HISTORY, 150),
        "resize it, three times": person.resizes,
        "show the help": person.asks_for_help,
        "open the settings, the first time": lambda: person.opens("ctrl+s"),
        "leave them": person.leaves,
        "open them again": lambda: person.opens("ctrl+s"),
        "leave them again": person.leaves,
        "open the picker, the first time": lambda: person.opens("f4"),
        "leave it": person.leaves,
        "open it again": lambda: person.opens("f4"),
        "leave it again": person.leaves,
        "open a reply of 10,000 lines of code": lambda: person.switches(_CODE),
        "resize that, three times": person.resizes,
        "open a reply of 2,000 paragraphs": lambda: person.switches(_PROSE),
        "resize this, three times": person.resizes,
    }


class _Person:
    """Does things in the chat and waits until they are shown."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._chat = app.screen

    async def switches(self, reply: str, times: int = 1) -> None:
        """Switch to a chat with this number of questions and replies."""
        from tui.session.conversation import ChatTurn
        from tui.widgets.chat_log import ChatLog
        from tui.widgets.document import StreamedMarkdown

        answer = ChatTurn("assistant", reply, end="stop")
        answer.runs.extend(reply)
        with self._app._context():  # noqa: SLF001 - as if a key had been pressed
            log = self._chat.query_one(ChatLog)
            await log.show_turns([ChatTurn("user", "An earlier question"), answer] * times)
        await asyncio.sleep(0.1)
        while not all(part.settled for part in self._chat.query(StreamedMarkdown)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def resizes(self) -> None:
        """Resize across the width from which details are next to the conversation, and back."""
        for columns in (100, 80, COLUMNS):
            resize(columns)
            await asyncio.sleep(0.4)

    async def opens(self, key: str) -> None:
        """Open another screen."""
        self._app.simulate_key(key)
        while self._app.screen is self._chat:  # noqa: ASYNC110 - from outside
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)

    async def leaves(self) -> None:
        """Leave the other screen."""
        self._app.simulate_key("escape")
        while self._app.screen is not self._chat:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)

    async def asks_for_help(self) -> None:
        """Show the help in the conversation."""
        self._app.simulate_key("f1")
        await asyncio.sleep(0.4)
