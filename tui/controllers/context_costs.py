"""The tokens of every message and of the tools: what fills the context."""

from __future__ import annotations

from localspec.errors import LocalspecError
from tui.controllers.feedback import Feedback
from tui.session.session import Session

_BRIEF = 60
"""Characters of a message in its row."""


class ContextCosts:
    """Counts by the vocabulary of the model that is loaded."""

    def __init__(self, session: Session, feedback: Feedback) -> None:
        self._session, self._feedback = session, feedback

    async def show(self) -> None:
        """List the messages of the branch that is shown, with their tokens."""
        try:
            rows = await self._rows()
        except LocalspecError as error:
            await self._feedback.note(str(error), error=True)
            return
        if rows is None:
            self._feedback.hint("tokens are counted by a model of this machine, once it is loaded")
        else:
            await self._feedback.show_list("Tokens in the context, without the template's", rows)

    async def _rows(self) -> list[tuple[str, str]] | None:
        session = self._session
        parts: list[tuple[str, str]] = []
        conversation = session.chat.conversation
        if conversation.system:
            parts.append(("system", conversation.system))
        for turn in conversation.turns:
            parts.append(("you" if turn.role == "user" else "model", turn.text))
            parts += [(f"result of {call.place}", call.said) for call in turn.calls]
        tools = session.tools.request()
        if tools is not None:
            parts.append(("tools", tools.text))
        rows, total = [], 0
        for who, text in parts:
            if not text:
                continue
            tokens = await session.engine.count(text)
            if tokens is None:
                return None
            total += tokens
            rows.append((f"{tokens:,}", f"{who}: {' '.join(text[: 2 * _BRIEF].split())[:_BRIEF]}"))
        info = session.engine.info
        size = f" of {info.context:,}" if info is not None and info.context else ""
        return [(f"{total:,}", f"in all{size}"), *rows]


__all__ = ["ContextCosts"]
