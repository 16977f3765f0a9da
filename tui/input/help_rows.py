"""What /help and the palette list: the keys of every day, all commands, then the other keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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
    typed = [(command.usage, command.does) for command in typed_commands()]
    return [*everyday, ("", ""), *typed, ("", ""), *others, *keymap.FIXED]


@dataclass(frozen=True, slots=True)
class Typed:
    """A typed command in a list."""

    line: str
    """The command as it is typed, without its arguments."""
    usage: str
    does: str


def typed_commands() -> Iterator[Typed]:
    """All of them, each with those of its arguments that are commands of their own."""
    for name, spec in commands.SPECS.items():
        yield Typed(f"/{name}", spec.usage, spec.help)
        for word, does in spec.also.items():
            yield Typed(f"/{name} {word}", f"/{name} {word}", does)


@dataclass(frozen=True, slots=True)
class Pressed:
    """A key of the chat that does what no typed command does."""

    action: tuple[str, ...]
    """Its name, and its arguments."""
    keys: str
    does: str


def pressed_commands(changed: Mapping[str, str]) -> Iterator[Pressed]:
    """The keys of the chat, but for the composer's, which change the text that is written there."""
    typed = {command.does for command in typed_commands()}
    for row in keymap.rows(changed, keymap.IN_THE_CHAT):
        action = keymap.commands(keymap.BY_ID[row.id])
        known = len(action) == 1 and action[0] in commands.SPECS
        if action and not known and row.does not in typed:
            yield Pressed(action, row.keys, row.does)
