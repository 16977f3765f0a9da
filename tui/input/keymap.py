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
    return Binding(keys, action, label, id=id, tooltip=tooltip, show=bool(label))


def _command(name: str, *arguments: int) -> str:
    """The action of a key that `tui.screens.chat.ChatScreen.action_command` carries out."""
    return f"command{(name, *arguments)!r}" if arguments else f"command({name!r})"


_CHAT = (
    _key("chat.stop", "escape", _command("stop"), "stop the reply and keep its text", "Stop"),
    _key("chat.help", "f1", _command("help"), "keys and commands", "Help"),
    _key("chat.colours", "ctrl+t", _command("colours"), "show where each token came from"),
    _key(
        "chat.details",
        "f2",
        _command("details"),
        "details of rounds, drafters and times",
        "Details",
    ),
    _key(
        "chat.compare",
        "f3",
        _command("compare"),
        "repeat the last reply with plain decoding; in an empty chat, the race",
        "Compare",
    ),
    _key(
        "chat.token_left",
        "alt+left",
        _command("token", -1),
        "the token before: p, q and alternatives",
    ),
    _key("chat.token_right", "alt+right", _command("token", 1), "the token after"),
    _key("chat.models", "f4", _command("models"), "choose a model, or a draft for it", "Models"),
    _key("chat.settings", "ctrl+s", _command("settings"), "see, change and save all settings"),
    _key(
        "chat.again",
        "f5",
        _command("again"),
        "answer the last question again, on another branch",
    ),
    _key(
        "chat.continue",
        "f9",
        _command("continue"),
        "continue a stopped reply, or answer a question without one",
    ),
    _key("chat.edit", "f8", _command("edit"), "change the last question, on another branch"),
    _key("chat.branch_before", "alt+up", _command("branch", -1), "show the branch before"),
    _key("chat.branch_after", "alt+down", _command("branch", 1), "show the branch after"),
    _key("chat.chats", "ctrl+l", _command("chats"), "choose a saved chat, or search them all"),
    _key("chat.new", "ctrl+n", _command("new"), "open a new chat; the others stay open"),
    _key("chat.next", "ctrl+pagedown,f12", _command("next_chat", 1), "the next open chat"),
    _key("chat.previous", "ctrl+pageup", _command("next_chat", -1), "the open chat before"),
    _key(
        "chat.restart",
        "ctrl+r",
        _command("restart"),
        "start the engine again after it died",
        "Restart",
    ),
    _key("chat.older", "ctrl+o", _command("older"), "load older messages"),
    _key("chat.allow_once", "alt+y", _command("allow", 0), "let the tool that asks run once"),
    _key("chat.allow_chat", "alt+c", _command("allow", 1), "let it run in this chat from now on"),
    _key("chat.allow_always", "alt+a", _command("allow", 2), "let it run in every chat, always"),
    _key("chat.allow_no", "alt+n", _command("allow", 3), "do not let it run"),
)
_PRIORITY = tuple(
    Binding(keys, action, id=id, tooltip=tooltip, show=False, priority=True)
    for id, keys, action, tooltip in (  # noqa: A001 - Textual's word
        (
            "chat.figures",
            "f6",  # the composer would select a line
            _command("figures"),
            "all figures in the bottom line, or few",
        ),
        ("chat.top", "ctrl+home", _command("oldest"), "to the oldest message"),
        ("chat.bottom", "ctrl+end", _command("newest"), "to the newest message"),
        (
            "chat.find",
            "ctrl+f",
            _command("find"),
            "search this chat; Up and Down step through the matches",
        ),
        # The composer of Textual selects with F7.
        ("chat.point_before", "f7", _command("point", -1), "the link, code or long text before"),
        ("chat.point_after", "shift+f7", _command("point", 1), "the link, code or long text after"),
        (
            "chat.open_pointed",
            "alt+o",
            _command("open_pointed"),
            "open that link, or fold the text",
        ),
        (
            "app.copy_or_quit",
            "ctrl+c",
            "copy_or_quit",
            "copy the selection, else stop, else clear the line; twice more: quit",
        ),
    )
)
_COMPOSER = (
    _key("composer.send", "enter", "send", "send; during a reply, send after it"),
    _key("composer.newline", "ctrl+j,shift+enter,alt+enter", "newline", "a new line"),
    _key("composer.editor", "ctrl+g", "editor", "write in $EDITOR"),
    _key("composer.complete", "tab", "complete", "complete a /command, argument or @file; indent"),
    _key("composer.undo", "ctrl+underscore,alt+z", "undo", "undo what was typed"),
    _key("composer.leave", "ctrl+d", "leave", "quit, in an empty composer"),
    _key("composer.page_up", "pageup", "page_up", "scroll the conversation up"),
    _key("composer.page_down", "pagedown", "page_down", "scroll the conversation down"),
)
_SUSPEND = Binding(
    "ctrl+z",
    "suspend_process",
    id="app.suspend",
    tooltip="suspend; fg in the shell brings it back",
    show=False,
    priority=True,
)
_QUIT = Binding("ctrl+q", "quit", "Quit", id="app.quit", tooltip="quit", priority=True)
_CLOSE = _key("compare.close", "escape", "leave", "close the comparison", "Close")
_RACE = (
    _key("race.close", "escape", "leave", "leave the race", "Close"),
    _key("race.take", "enter", "take", "use the best model for this machine", "Use it"),
    _key("race.again", "f3", "again", "race once more", "Again"),
    _key("race.models", "f4", "models", "list all models", "Models"),
)
_MODELS = (
    _key("models.close", "escape", "leave", "back to the chat", "Close"),
    Binding(
        "enter",
        "choose",
        "Use or pull",
        id="models.choose",
        tooltip="use the model, or download it",
        priority=True,  # else the input's own key would hide it from the footer
    ),
    _key("models.drafts", "tab", "drafts", "targets or drafts", "Targets/drafts"),
    _key(
        "models.measure",
        "ctrl+r",
        "measure",
        "measure this machine again, for the expected speeds",
        "Measure",
    ),
    _key("models.up", "up", "move(-1)", "the model above"),
    _key("models.down", "down", "move(1)", "the model below"),
    _key("models.page_up", "pageup", "page(-1)", "a page up"),
    _key("models.page_down", "pagedown", "page(1)", "a page down"),
)
_CHATS = (
    _key("chats.close", "escape", "leave", "back to the chat", "Close"),
    Binding(
        "enter",
        "choose",
        "Open",
        id="chats.choose",
        tooltip="open the chat, at the message that was found",
        priority=True,  # as models.choose
    ),
    _key("chats.up", "up", "move(-1)", "the chat above"),
    _key("chats.down", "down", "move(1)", "the chat below"),
    _key("chats.page_up", "pageup", "page(-1)", "a page up"),
    _key("chats.page_down", "pagedown", "page(1)", "a page down"),
)
_PRESETS = (
    _key("presets.close", "escape", "leave", "back to the chat", "Close"),
    Binding(
        "enter",
        "choose",
        "Use",
        id="presets.choose",
        tooltip="use the preset from the next reply on",
        priority=True,  # as models.choose
    ),
    _key("presets.up", "up", "move(-1)", "the preset above"),
    _key("presets.down", "down", "move(1)", "the preset below"),
    _key("presets.page_up", "pageup", "page(-1)", "a page up"),
    _key("presets.page_down", "pagedown", "page(1)", "a page down"),
)
_ROWS = (
    _key("rows.close", "escape", "leave", "back to the chat", "Close"),
    Binding(
        "enter",
        "choose",
        "Show",
        id="rows.choose",
        tooltip="show the open chat under the cursor",
        priority=True,  # as models.choose
    ),
    _key("rows.up", "up", "move(-1)", "the row above"),
    _key("rows.down", "down", "move(1)", "the row below"),
    _key("rows.page_up", "pageup", "page(-1)", "a page up"),
    _key("rows.page_down", "pagedown", "page(1)", "a page down"),
)
_THEMES = (
    _key("themes.close", "escape", "leave", "back to the theme before", "Close"),
    Binding(
        "enter",
        "choose",
        "Keep",
        id="themes.choose",
        tooltip="keep the theme under the cursor",
        priority=True,  # as models.choose
    ),
    _key("themes.up", "up", "move(-1)", "the theme above"),
    _key("themes.down", "down", "move(1)", "the theme below"),
    _key("themes.page_up", "pageup", "page(-1)", "a page up"),
    _key("themes.page_down", "pagedown", "page(1)", "a page down"),
)
_FIND = (
    _key("find.close", "escape", "leave", "leave the search"),
    _key("find.before", "up", "step(-1)", "the place before"),
    _key("find.after", "down", "step(1)", "the place after"),
)
_LISTING = (
    _key("listing.close", "escape,f1", "leave", "back to the chat", "Close"),
    _key("listing.up", "up", "scroll(-1)", "a line up"),
    _key("listing.down", "down", "scroll(1)", "a line down"),
    _key("listing.page_up", "pageup", "page(-1)", "a page up"),
    _key("listing.page_down", "pagedown", "page(1)", "a page down"),
)
_SETTINGS = (
    _key("settings.apply", "enter", "apply", "use these settings from the next reply on", "Apply"),
    _key("settings.save", "ctrl+s", "save", "use them and write them to config.toml", "Save"),
    _key("settings.close", "escape", "leave", "leave the settings as they were", "Close"),
    # At once, or what is typed after it would still go to the setting before.
    replace(_key("settings.up", "up", "app.focus_previous", "the setting above"), priority=True),
    replace(_key("settings.down", "down", "app.focus_next", "the setting below"), priority=True),
)

APP_KEYS = (_QUIT, _SUSPEND, _PRIORITY[-1])
"""Keys with the same meaning on every screen."""
CHAT: list[BindingType] = [*_CHAT, *_PRIORITY[:-1]]
APP: list[BindingType] = [*APP_KEYS]
COMPOSER: list[BindingType] = [*_COMPOSER]
COMPARE: list[BindingType] = [_CLOSE]
RACE: list[BindingType] = [*_RACE]
MODELS: list[BindingType] = [*_MODELS]
SETTINGS: list[BindingType] = [*_SETTINGS]
LISTING: list[BindingType] = [*_LISTING]
CHATS: list[BindingType] = [*_CHATS]
PRESETS: list[BindingType] = [*_PRESETS]
ROWS: list[BindingType] = [*_ROWS]
THEMES: list[BindingType] = [*_THEMES]
FIND: list[BindingType] = [*_FIND]

IN_THE_CHAT = (*_COMPOSER, *_CHAT, *_PRIORITY, _SUSPEND, _QUIT)
"""The keys of the chat; the other screens list theirs in the footer."""
_SCREENS = (
    *(_CLOSE, *_RACE, *_MODELS, *_SETTINGS, *_LISTING),
    *(*_CHATS, *_PRESETS, *_ROWS, *_THEMES, *_FIND),
)
_ALL = (*IN_THE_CHAT, *_SCREENS)
BY_ID = {binding.id or "": binding for binding in _ALL}
FIXED = (
    ("Up / Down", "earlier and later messages, in an empty composer"),
    ("Ctrl+P", "all commands, themes among them"),
)
"""Keys of Textual, or with a meaning that depends on the place."""


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
    for screen in (
        IN_THE_CHAT,
        (*APP_KEYS, _CLOSE),
        (*APP_KEYS, *_RACE),
        (*APP_KEYS, *_MODELS),
        (*APP_KEYS, *_SETTINGS),
        (*APP_KEYS, *_LISTING),
        (*APP_KEYS, *_CHATS),
        (*APP_KEYS, *_PRESETS),
        (*APP_KEYS, *_ROWS),
        (*APP_KEYS, *_THEMES),
    ):
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
