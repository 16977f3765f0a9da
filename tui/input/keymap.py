"""Every key of the interface, with an id that the configuration can bind to another key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from textual.binding import Binding, BindingType

from localspec.core.errors import UsageError


def _key(id: str, keys: str, action: str, tooltip: str, label: str = "") -> Binding:  # noqa: A002
    """A key; with a label it is shown in the footer."""
    return Binding(keys, action, label, show=bool(label), id=id, tooltip=tooltip)


def _chat(
    name: str, keys: str, tooltip: str, label: str = "", does: tuple[str | int, ...] = ()
) -> Binding:
    """A key of the chat, which `tui.controllers.chat_actions.ChatActions.press` carries out;
    ``does`` is what it gets, where that is not the key's name alone.
    """
    command, *arguments = does or (name,)
    action = f"command({', '.join(map(repr, (command, *arguments)))})"
    return _key(f"chat.{name}", keys, action, tooltip, label)


_REPEAT = "repeat the last reply with plain decoding; in an empty chat, the race"
_CHAT = (
    _chat("stop", "escape", "stop the reply and keep its text", "Stop"),
    _chat("help", "f1", "keys and commands", "Help"),
    _chat("colours", "ctrl+t", "show where each token came from"),
    _chat("details", "f2", "details of rounds, drafters and times", "Details"),
    _chat("compare", "f3", _REPEAT, "Compare"),
    _chat("token_left", "alt+left", "the token before: p, q and alternatives", does=("token", -1)),
    _chat("token_right", "alt+right", "the token after", does=("token", 1)),
    _chat("models", "f4", "choose a model, or a draft for it", "Models"),
    _chat("settings", "ctrl+s", "sampling and drafting: see, change and save"),
    _chat("again", "f5", "answer the last question again, on another branch"),
    _chat("continue", "f9", "continue a stopped reply, or answer a question without one"),
    _chat("edit", "f8", "change the last question, on another branch"),
    _chat("branch_before", "alt+up", "show the branch before", does=("branch", -1)),
    _chat("branch_after", "alt+down", "show the branch after", does=("branch", 1)),
    _chat("chats", "ctrl+l", "choose a saved chat, or search them all"),
    _chat("new", "ctrl+n", "open a new chat; the others stay open"),
    _chat("next", "ctrl+pagedown,f12", "the next open chat", does=("next_chat", 1)),
    _chat("previous", "ctrl+pageup", "the open chat before", does=("next_chat", -1)),
    _chat("restart", "ctrl+r", "start the engine again after it died", "Restart"),
    _chat("older", "ctrl+o", "load older messages"),
    _chat("allow_once", "alt+y", "let the tool that asks run once", does=("allow", 0)),
    _chat("allow_chat", "alt+c", "let it run in this chat from now on", does=("allow", 1)),
    _chat("allow_always", "alt+a", "let it run in every chat, always", does=("allow", 2)),
    _chat("allow_no", "alt+n", "do not let it run", does=("allow", 3)),
)
_BEFORE_THE_COMPOSER = tuple(
    replace(key, priority=True)
    for key in (
        _chat("figures", "f6", "all figures in the bottom line, or few"),
        _chat("top", "ctrl+home", "to the oldest message", does=("oldest",)),
        _chat("bottom", "ctrl+end", "to the newest message", does=("newest",)),
        _chat("find", "ctrl+f", "search this chat; Up and Down step through the matches"),
        _chat("point_before", "f7", "the link, code or long text before", does=("point", -1)),
        _chat("point_after", "shift+f7", "the link, code or long text after", does=("point", 1)),
        _chat("open_pointed", "alt+o", "open that link, or fold the text"),
    )
)
"""Keys of the chat that the composer has a use for, too: it selects with F6 and F7."""
_COMPOSER = (
    _key("composer.send", "enter", "send", "send; during a reply, send after it"),
    _key("composer.newline", "ctrl+j,shift+enter,alt+enter", "newline", "a new line"),
    _key("composer.editor", "ctrl+g", "editor", "write in $EDITOR"),
    _key("composer.complete", "tab", "complete", "complete a /command, argument or @file; indent"),
    _key("composer.undo", "ctrl+underscore,alt+z", "undo", "undo what was typed"),
    _key("composer.leave", "ctrl+d", "leave", "quit, in an empty composer"),
    _key("composer.page_up", "pageup", "screen.page(-1)", "scroll the conversation up"),
    _key("composer.page_down", "pagedown", "screen.page(1)", "scroll the conversation down"),
)
_COPY_OR_QUIT = replace(
    _key(
        "app.copy_or_quit",
        "ctrl+c",
        "copy_or_quit",
        "copy the selection, else stop, else clear the line; twice more: quit",
    ),
    priority=True,
)
_SUSPEND = replace(
    _key("app.suspend", "ctrl+z", "suspend_process", "suspend; fg in the shell brings it back"),
    priority=True,
)
_QUIT = Binding("ctrl+q", "quit", "Quit", id="app.quit", tooltip="quit", priority=True)


def _close(screen: str, tooltip: str = "back to the chat", keys: str = "escape") -> Binding:
    return _key(f"{screen}.close", keys, "leave", tooltip, "Close")


def _moves(
    screen: str, row: str, action: str = "move", ways: tuple[str, str] = ("above", "below")
) -> tuple[Binding, ...]:
    """The keys that move in a list whose rows are called ``row``."""
    return (
        _key(f"{screen}.up", "up", f"{action}(-1)", f"{row} {ways[0]}"),
        _key(f"{screen}.down", "down", f"{action}(1)", f"{row} {ways[1]}"),
        _key(f"{screen}.page_up", "pageup", "page(-1)", "a page up"),
        _key(f"{screen}.page_down", "pagedown", "page(1)", "a page down"),
    )


def _chooses(screen: str, label: str, tooltip: str) -> Binding:
    """Enter in a list; with priority, or the input's own key would hide it from the footer."""
    return replace(_key(f"{screen}.choose", "enter", "choose", tooltip, label), priority=True)


_FIND = (
    _key("find.close", "escape", "leave", "leave the search"),
    _key("find.before", "up", "step(-1)", "the place before"),
    _key("find.after", "down", "step(1)", "the place after"),
)
_SCREENS = {
    "compare": (_close("compare", "close the comparison"),),
    "race": (
        _close("race", "leave the race"),
        _key("race.take", "enter", "take", "use the best model for this machine", "Use it"),
        _key("race.again", "f3", "again", "race once more", "Again"),
        _key("race.models", "f4", "models", "list all models", "Models"),
    ),
    "models": (
        _close("models"),
        _chooses("models", "Use or pull", "use the model, or download it"),
        _key("models.drafts", "tab", "drafts", "targets or drafts", "Targets/drafts"),
        _key(
            "models.measure",
            "ctrl+r",
            "measure",
            "measure this machine again, for the expected speeds",
            "Measure",
        ),
        *_moves("models", "the model"),
    ),
    "settings": (
        _key(
            "settings.apply", "enter", "apply", "use these settings from the next reply on", "Apply"
        ),
        _key(
            "settings.save",
            "ctrl+s",
            "save",
            "use them and write those that were changed to config.toml",
            "Save",
        ),
        _close("settings", "leave the settings as they were"),
        # At once, or what is typed after it would still go to the setting before.
        *(
            replace(_key(f"settings.{way}", way, action, tooltip), priority=True)
            for way, action, tooltip in (
                ("up", "app.focus_previous", "the setting above"),
                ("down", "app.focus_next", "the setting below"),
            )
        ),
    ),
    "listing": (
        _close("listing", keys="escape,f1"),
        *_moves("listing", "a line", "scroll", ("up", "down")),
    ),
    "chats": (
        _close("chats"),
        _chooses("chats", "Open", "open the chat, at the message that was found"),
        *_moves("chats", "the chat"),
    ),
    "presets": (
        _close("presets"),
        _chooses("presets", "Use", "use the preset from the next reply on"),
        *_moves("presets", "the preset"),
    ),
    "rows": (
        _close("rows"),
        _chooses("rows", "Show", "show the open chat under the cursor"),
        *_moves("rows", "the row"),
    ),
    "themes": (
        _close("themes", "back to the theme before"),
        _chooses("themes", "Keep", "keep the theme under the cursor"),
        *_moves("themes", "the theme"),
    ),
}
"""The keys of the screens that are shown over the chat."""

APP_KEYS = (_QUIT, _SUSPEND, _COPY_OR_QUIT)
"""Keys with the same meaning on every screen."""
APP: list[BindingType] = [*APP_KEYS]
CHAT: list[BindingType] = [*_CHAT, *_BEFORE_THE_COMPOSER]
COMPOSER: list[BindingType] = [*_COMPOSER]
FIND: list[BindingType] = [*_FIND]

IN_THE_CHAT = (
    *(*_COMPOSER, *_CHAT, *_BEFORE_THE_COMPOSER),
    *(_COPY_OR_QUIT, _SUSPEND, _QUIT),
)
"""The keys of the chat; the other screens list theirs in the footer."""
_ALL = (*IN_THE_CHAT, *(key for keys in _SCREENS.values() for key in keys), *_FIND)
BY_ID = {binding.id or "": binding for binding in _ALL}
FIXED = (
    ("Up / Down", "earlier and later messages, in an empty composer"),
    ("Ctrl+P", "all commands, themes among them"),
)
"""Keys of Textual, or with a meaning that depends on the place."""


def of_screen(name: str) -> list[BindingType]:
    """The keys of a screen over the chat."""
    return [*_SCREENS[name]]


class KeyRow(NamedTuple):
    """A key as documentation and /help list it."""

    id: str
    keys: str
    """Key names as users write them."""
    does: str


_NAMES = {
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "escape": "Esc",
    "left": "←",
    "right": "→",
}
_VALID = re.compile(r"[a-z0-9_]+(\+[a-z0-9_]+)*(,[a-z0-9_]+(\+[a-z0-9_]+)*)*")


def overrides(settings: Mapping[str, object]) -> dict[str, str]:
    """The table ``[keys]`` of config.toml: id to keys, as Textual writes them.

    Raises:
        UsageError: an unknown id, invalid keys, or a key with two meanings.
    """
    table = settings.get("keys", {})
    if not isinstance(table, dict):
        raise UsageError('config.toml: keys is a table, as in [keys] and "chat.compare" = "f10"')
    found: dict[str, str] = {}
    for name, keys in _flat(table):
        if name not in BY_ID:
            raise UsageError(f"config.toml: there is no key {name!r}; docs/keys.md lists the names")
        if not (isinstance(keys, str) and _VALID.fullmatch(keys)):
            raise UsageError(f'config.toml: {name} needs keys such as "f10" or "ctrl+b,f10"')
        found[name] = keys
    for screen in (IN_THE_CHAT, *((*APP_KEYS, *keys) for keys in _SCREENS.values())):
        _require_one_meaning(screen, found)
    return found


def _require_one_meaning(screen: Iterable[Binding], changed: Mapping[str, str]) -> None:
    """Raise where a key would have two meanings on a screen."""
    does: dict[str, str] = {}
    for binding in screen:
        name = binding.id or ""
        for key in changed.get(name, binding.key).split(","):
            other = does.setdefault(key, name)
            if other != name and {name, other} & changed.keys():
                raise UsageError(
                    f"config.toml: {key} is both {other} and {name}; give one of them another key"
                )


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, object]]:
    """Quoted and bare dotted names mean the same."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def commands(binding: Binding) -> tuple[str, ...]:
    """The action of a key of the chat that is carried out there: its name, and numbers as text;
    empty for others.
    """
    found = re.fullmatch(r"command\((.*)\)", binding.action)
    return tuple(re.findall(r"[\w-]+", found[1])) if found else ()


def shown(keys: str) -> str:
    """Key names as users write them."""
    return " / ".join(
        "+".join(_NAMES.get(part, part.capitalize()) for part in key.split("+"))
        for key in keys.split(",")
    )


def key_of(name: str, changed: Mapping[str, str]) -> str:
    """The key with that id, as users write it."""
    return shown(changed.get(name, BY_ID[name].key))


def rows(changed: Mapping[str, str], bindings: Iterable[Binding] = _ALL) -> list[KeyRow]:
    """Every key, or those of ``bindings``."""
    return [
        KeyRow(name, shown(changed.get(name, binding.key)), binding.tooltip)
        for binding in bindings
        if (name := binding.id) is not None
    ]


def named(key: str) -> str:
    """A key's usual name; Shift+Enter as xterm and tmux send it comes with a bare return."""
    return key.replace("\r", "enter")
