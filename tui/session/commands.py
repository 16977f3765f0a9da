"""Typed commands: lines that start with a slash."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from localspec.core.errors import RAISE_CTX, UsageError
from localspec.core.sampler_settings import TEMPERATURE
from localspec.core.setting_spec import SettingSpec
from localspec.core.settings_schema import SEED

_SHAPE = re.compile(r"/([a-z]+|\?)(?:\s+(.*))?$", re.DOTALL)


Value = str | float | int | bool | None


class CommandError(ValueError):
    """An unknown or invalid command; the text is for the user."""


class _MissingError(CommandError):
    """Its argument is missing."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command and its checked argument."""

    name: str
    value: Value = None


@dataclass(frozen=True, slots=True)
class Spec:
    """How a command is written, what it does and how its argument is read."""

    usage: str
    help: str
    read: Callable[[str], Value]
    also: Mapping[str, str] = field(default_factory=dict)
    """Arguments that are commands of their own in lists, with what they do."""


def _nothing(text: str) -> None:
    if text:
        raise CommandError("takes no argument")


def _typed(spec: SettingSpec[Any], text: str, further: str) -> Any:
    """The value that a typed text means; ``further`` ends the message where it is none."""
    try:
        return spec.parse(text)
    except UsageError as error:
        told = str(error).removeprefix(f"{spec.name} ")
        raise CommandError(f"{told}; {further}") from None


def _temperature(text: str) -> float:
    value: float = _typed(TEMPERATURE, text, "as in /temp 0.8")
    return value


def _seed(text: str) -> int | None:
    if text in ("", "off", "random"):
        return None
    seed: int | None = _typed(SEED, text, "or nothing for a new seed each time")
    return seed


def _variants(text: str) -> int:
    if not text:
        return 3
    if not re.fullmatch(r"[2-8]", text):
        raise CommandError("needs a number from 2 to 8, as in /variants 3")
    return int(text)


def _switch(text: str) -> bool | None:
    return None if not text else text == "on"


def _thinking(text: str) -> str:
    if text not in ("", "on", "off", "auto"):
        raise CommandError("takes on, off, auto or nothing")
    return text


def _draft(text: str) -> bool | str | None:
    return _switch(text) if text in ("", "on", "off") else text


def _back(text: str) -> bool:
    if text not in ("", "back", "next"):
        raise CommandError("takes back, next or nothing")
    return text == "back"


def _text(text: str) -> str:
    if not text:
        raise _MissingError
    return text


def _code(text: str) -> bool:
    if text not in ("", "code"):
        raise CommandError("takes code or nothing")
    return text == "code"


SPECS = {
    "help": Spec("/help", "keys and commands", _nothing),
    "new": Spec("/new", "open a new chat; the others stay open", _nothing),
    "open": Spec("/open [N]", "list the open chats, or show one", str),
    "close": Spec("/close", "close this chat; /resume brings it back", _nothing),
    "again": Spec("/again [MODEL]", "answer the last question again, on another branch", str),
    "variants": Spec(
        "/variants [N]", "answer the last question N times more (3), on branches", _variants
    ),
    "continue": Spec("/continue", "continue a stopped reply", _nothing),
    "edit": Spec("/edit", "change the last question, on another branch", _nothing),
    "branch": Spec(
        "/branch [back]",
        "show the next branch, or the one before",
        _back,
        {"back": "show the branch before"},
    ),
    "chats": Spec("/chats [WORDS]", "choose a saved chat, or search them all", str),
    "find": Spec("/find", "search this chat", _nothing),
    "resume": Spec("/resume [ID]", "continue another chat; without ID, the last one", str),
    "delete": Spec("/delete", "delete this chat (recoverable for 30 days)", _nothing),
    "undo": Spec("/undo", "bring back the chat that was deleted last", _nothing),
    "title": Spec("/title [TEXT]", "name this chat; without TEXT, the model does", str),
    "image": Spec("/image FILE", "put a picture into the message; @FILE does the same", _text),
    "export": Spec("/export FILE", "write this chat: Markdown (.md, .txt) or .json", _text),
    "import": Spec("/import FILE", "add the chats of a JSON export", _text),
    "system": Spec("/system [TEXT | none]", "see the system prompt, set it, or have none", str),
    "models": Spec("/models [WORDS]", "choose a model, or search for one", str),
    "model": Spec("/model [NAME [DRAFT]]", "answer with another model; the chat stays", str),
    "pull": Spec("/pull NAME [DRAFT]", "download a model from the Hub while chatting", _text),
    "set": Spec("/set [NAME [VALUE]]", "list settings, explain one, or change it", str),
    "preset": Spec(
        "/preset [NAME | save NAME]", "choose a preset, use one by name, or save one", str
    ),
    "settings": Spec("/settings", "sampling and drafting: see, change and save", _nothing),
    "temp": Spec("/temp X", "sampling temperature; 0 is greedy", _temperature),
    "seed": Spec("/seed N", "fixed seed; without N, a new one each time", _seed),
    "schema": Spec("/schema [FILE | off]", "replies as JSON that fits a schema, or any text", str),
    "think": Spec("/think [on|off|auto]", "switch thinking, where the model can", _thinking),
    "draft": Spec(
        "/draft [on|off|NAME]", "see if replies are drafted, switch it, or name a draft", _draft
    ),
    "mcp": Spec("/mcp [NAME | on NAME | off NAME | import]", "servers of tools", str),
    "folder": Spec("/folder [PATH | off]", "let the model read files below a folder", str),
    "allow": Spec("/allow [once | chat | always]", "let the tool that asks run", str),
    "deny": Spec("/deny", "do not let the tool that asks run", _nothing),
    "race": Spec("/race", "watch drafting and plain decoding with a large toy", _nothing),
    "compare": Spec("/compare", "repeat the last reply with plain decoding", _nothing),
    "details": Spec("/details", "show times, acceptance and drafters", _nothing),
    "figures": Spec("/figures", "all figures in the bottom line, or few", _nothing),
    "colours": Spec("/colours", "show where each token came from", _nothing),
    "copy": Spec(
        "/copy [code]",
        "copy the last reply, or its last code block",
        _code,
        {"code": "copy the last code block"},
    ),
    "context": Spec("/context", "the tokens of every message and of the tools", _nothing),
    "compact": Spec("/compact", "go on from a summary, on another branch", _nothing),
    "theme": Spec("/theme [NAME]", "look at the themes, or use one from now on", str),
    "quit": Spec("/quit", "leave", _nothing),
}
_ALIASES = {
    "?": "help",
    "colors": "colours",
    "exit": "quit",
    "bye": "quit",
    "load": "model",
    "regen": "again",
    "clear": "new",
    "temperature": "temp",
    "regenerate": "again",
}


def parse(text: str) -> Command | None:
    """The command in ``text``; None for a message to the model. Raises CommandError.

    A path or a regular expression may start with a slash too, so only a single word of letters is
    a command; with a space before the slash it is sent to the model.
    """
    match = _SHAPE.match(text)
    if match is None:
        return None
    name = _ALIASES.get(match[1], match[1])
    spec = SPECS.get(name)
    if spec is None:
        raise CommandError(f"there is no /{name}; /help lists the commands")
    try:
        return Command(name, spec.read((match[2] or "").strip()))
    except _MissingError:
        raise CommandError(f"{spec.usage}: {spec.help}") from None
    except CommandError as error:
        raise CommandError(f"/{name} {error}") from None


_IN_THE_SHELL = re.compile(r"`localspec (models|pull [^-`][^`]*|chats list)`")


def told_here(text: str) -> str:
    """The text of an error with commands of the chat in place of those of the shell."""
    text = text.replace(RAISE_CTX, "take more with /set ctx N")
    return _IN_THE_SHELL.sub(lambda found: "/" + found[1].removesuffix(" list"), text)
