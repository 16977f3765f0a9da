"""The rows of /help: the keys of every day, all commands, then the other keys."""

from __future__ import annotations

from collections.abc import Mapping

from tui.input import keymap
from tui.session import commands

_EVERYDAY = frozenset(
    {
        "composer.send",
        "composer.newline",
        "chat.stop",
        "chat.colours",
        "chat.details",
        "chat.compare",
        "chat.models",
        "chat.settings",
        "chat.again",
        "chat.chats",
        "chat.new",
        "app.quit",
    }
)
"""Keys that are listed before all commands; the others come after them."""


def help_rows(changed: Mapping[str, str]) -> list[tuple[str, str]]:
    """All keys and commands with what they do; ``changed`` maps ids of `keymap` to other keys."""
    everyday, others = list[tuple[str, str]](), list[tuple[str, str]]()
    for row in keymap.rows(changed, keymap.IN_THE_CHAT):
        (everyday if row.id in _EVERYDAY else others).append((row.keys, row.does))
    typed = [(spec.usage, spec.help) for spec in commands.SPECS.values()]
    return [*everyday, ("", ""), *typed, ("", ""), *others, *keymap.FIXED]
