"""Completions of the word that is typed: commands, settings, presets, chats, models, files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from localspec.config import presets
from localspec.core.errors import LocalspecError, UsageError
from localspec.core.files import checked, paths
from tui.input import setting_fields
from tui.session import commands
from tui.terminal import theme

_COMMAND = re.compile(r"^/([a-z]*)$")
_PRESET = re.compile(r"^/preset ([\w-]*)$")
_PATH = re.compile(r"^/(?:export|import|folder) (\S*)$")
_THEME = re.compile(r"^/theme ([\w-]*)$")
_RESUME = re.compile(r"^/resume ([^\n]*)$")
_OPEN = re.compile(r"^/open ([^\n]*)$")
_MODEL = re.compile(r"^/(model|draft|pull) (\S*)$")
_DRAFTS = {
    "on": "draft from the next reply on",
    "off": "plain decoding from the next reply on",
    "auto": "the draft that the catalogue pairs with the target",
    "none": "no draft model",
}
_SETTING = re.compile(r"^/set (\w*)$")
_FILE = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]*)|([^\s"]\S*|))$')
_MOST = 200
"""Largest number of completions; with more, the user types further letters."""
_ENTRIES_READ = 20_000
"""Entries of a folder that are read; reading happens between two keys."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One completion."""

    text: str
    """The completed word."""
    replaces: int
    """Characters before the cursor that it replaces."""
    help: str = ""


@dataclass(frozen=True, slots=True)
class Known:
    """Chats that can be completed; only the screen knows them."""

    saved: Mapping[str, str] = field(default_factory=dict)
    """Beginnings of the ids of saved chats, and their titles; the one used last first."""
    opened: Mapping[str, str] = field(default_factory=dict)
    """Numbers of the open chats, and their titles."""


def completions(before: str, known: Known | None = None) -> list[Completion]:
    """Completions of ``before``, the whole text up to the cursor."""
    for pattern, find in _FINDS.items():
        if match := pattern.search(before):
            return find(match, known or Known())
    return []


def wants_chats(text: str) -> bool:
    """Whether saved or open chats are needed to complete a text."""
    return text.startswith(("/resume", "/open"))


def _called(typed: str, chats: Mapping[str, str]) -> list[Completion]:
    """Chats whose id starts with ``typed``, or whose title contains it."""
    found = [
        Completion(name, len(typed), title)
        for name, title in chats.items()
        if name.startswith(typed) or typed.casefold() in title.casefold()
    ]
    return found[:_MOST]


def _models(match: re.Match[str], _: Known) -> list[Completion]:
    """Names of the catalogue, and files where the command takes one."""
    from localspec.models.catalog.catalog import catalog  # not needed for the first picture

    command, typed = match[1], match[2]
    words = _DRAFTS if command == "draft" else {}
    try:
        pairs = catalog()
    except LocalspecError:  # the command itself reports the error
        pairs = {}
    names = {name: pair.about for name, pair in pairs.items()}
    named = _starting(typed, {**words, **names})
    if command == "pull" or not typed:
        return named
    return named + [found for found in _bare(typed) if found.text.endswith((".gguf", os.sep))]


def _commands(match: re.Match[str], _: Known) -> list[Completion]:
    return _starting(match[0], {f"/{name}": spec.help for name, spec in commands.SPECS.items()})


def _settings(match: re.Match[str], _: Known) -> list[Completion]:
    return _starting(match[1], {name: field.help for name, field in setting_fields.BY_NAME.items()})


def _presets(match: re.Match[str], _: Known) -> list[Completion]:
    try:
        found = presets.presets()
    except UsageError:  # the command itself reports the error
        return []
    return _starting(match[1], {name: preset.about for name, preset in found.items()})


def _starting(typed: str, known: Mapping[str, str]) -> list[Completion]:
    return [
        Completion(name, len(typed), about)
        for name, about in known.items()
        if name.startswith(typed)
    ]


def _bare(typed: str) -> list[Completion]:
    """Files without the marks of a message: a command takes the rest of its line."""
    found = _files(typed, len(typed))
    return [replace(one, text=one.text[1:].strip('"')) for one in found]


def _files(typed: str, length: int) -> list[Completion]:
    """Files whose path starts with ``typed``; ``length`` characters are replaced."""
    folder, name = os.path.split(typed)
    before = typed.removesuffix(name)
    try:
        place = paths.expand(folder)
        checked.require_possible(place)
        with os.scandir(place) as entries:
            meant = (
                entry
                for entry in islice(entries, _ENTRIES_READ)
                if entry.name.startswith(name) and (name or not entry.name.startswith("."))
            )
            found = [(entry.name, entry.is_dir()) for entry in islice(meant, _MOST)]
    except OSError:  # no such folder, or not readable, or none that there can be
        return []
    return [
        Completion(_named(before + entry, is_folder=is_folder), length)
        for entry, is_folder in sorted(found)
        if not re.search(r'["\n]', entry)
    ]


def _named(path: str, *, is_folder: bool) -> str:
    """The path as a message names it; after a folder the quotes stay open."""
    end = os.sep if is_folder else ""
    if not re.search(r"\s", path):
        return f"@{path}{end}"
    return f'@"{path}{end}' + ("" if is_folder else '"')


_FINDS: dict[re.Pattern[str], Callable[[re.Match[str], Known], list[Completion]]] = {
    _RESUME: lambda match, known: _called(match[1], known.saved),
    _OPEN: lambda match, known: _called(match[1], known.opened),
    _COMMAND: _commands,
    _PRESET: _presets,
    _THEME: lambda match, _: _starting(match[1], dict.fromkeys(theme.NAMES, "")),
    _SETTING: _settings,
    _MODEL: _models,
    _PATH: lambda match, _: _bare(match[1]),
    _FILE: lambda match, _: _files(match[1] or match[2] or "", len(match[0])),
}
"""Patterns of the text before the cursor, and the functions that complete it."""
