"""Large pastes: a short mark takes their place while the message is typed."""

from __future__ import annotations

_LINES = 12
_CHARACTERS = 1500


class Pastes:
    """The pasted texts of one message, by their marks."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._count = 0

    @staticmethod
    def is_large(text: str) -> bool:
        """Whether a text is replaced by a mark."""
        return text.count("\n") >= _LINES or len(text) > _CHARACTERS

    def fold(self, text: str) -> str:
        """A mark for a large text; a small text unchanged."""
        if not self.is_large(text):
            return text
        lines = text.count("\n") + 1
        self._count += 1
        size = f"{lines} lines" if lines > 1 else f"{len(text)} characters"
        mark = f"[pasted text {self._count}, {size}]"
        self._texts[mark] = text
        return mark

    def unfold(self, text: str) -> str:
        """``text`` with the pasted texts in place of their marks."""
        for mark, pasted in self._texts.items():
            text = text.replace(mark, pasted)
        return text

    def within(self, text: str) -> tuple[str, ...]:
        """The pasted texts of which ``text`` has the mark, or which stand in it."""
        return tuple(p for mark, p in self._texts.items() if mark in text or p in text)
