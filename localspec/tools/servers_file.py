"""mcp.json: which servers there are, in the form that Claude Desktop, LM Studio and others share.

It lies in localspec's own folder of settings. One in the working directory is never read: it would
let whoever made that directory run programs.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from localspec.core.errors import LocalspecError, UsageError
from localspec.core.files import checked, closed, paths, private, whole_file
from localspec.tools.values import prefix

_LARGEST = 1 << 20
"""Bytes of the file."""
MOST_SERVERS = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,30}")
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_FORMS = ("mcpServers", "servers")
"""Claude Desktop's name for the table and VS Code's."""
LONGEST_CALL = 60.0
"""Seconds of a call, where the file says nothing else."""
LONGEST_START = 30.0
"""Seconds until a server has told its tools, likewise."""


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One server: a program to start, or an address."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    disabled: bool = False
    seconds: float = LONGEST_CALL
    """Most seconds of a call."""
    starting: float = LONGEST_START
    """Most seconds until it has told its tools."""

    @property
    def where(self) -> str:
        """The program, or the address's scheme and host: what else they have may be keys."""
        if not self.url:
            return Path(self.command).name
        address = urlsplit(private.without_user(self.url))
        return f"{address.scheme}://{address.netloc}"


def path() -> Path:
    """The file of the user."""
    return paths.config_dir() / "mcp.json"


def servers() -> tuple[ServerSpec, ...]:
    """The servers of the user's file; none where there is no such file.

    Raises:
        UsageError: the file cannot be read, or something in it is refused.
    """
    file = path()
    try:
        raw = closed.content(file, _LARGEST + 1)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    if len(raw) > _LARGEST:
        raise UsageError(f"{file} is larger than 1 MB")
    try:
        return read(raw)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None


def read(raw: bytes) -> tuple[ServerSpec, ...]:
    """The servers of a file of any of the known forms.

    Raises:
        UsageError: something in it is refused.
    """
    found = tuple(_spec(name, entry) for name, entry in _table(raw).items())
    if len(found) > MOST_SERVERS:
        raise UsageError(f"{len(found)} servers; {MOST_SERVERS} is the most")
    for at, spec in enumerate(found):
        if alike := _called_alike(spec.name, (one.name for one in found[:at])):
            raise UsageError(alike)
    return found


def _called_alike(name: str, others: Iterable[str]) -> str:
    """That tools of two servers could have one name, as ``a__b__c`` of ``a`` and ``a__b``; ""
    where they cannot.
    """
    mine = prefix(name)
    for other in others:
        theirs = prefix(other)
        if mine.startswith(theirs) or theirs.startswith(mine):
            return f"tools of {other!r} and {name!r} could have the same name; rename one server"
    return ""


def _table(raw: bytes) -> Mapping[str, Any]:
    whole, form = _whole(raw)
    table: Mapping[str, Any] = whole[form]
    return table


def _whole(raw: bytes) -> tuple[Mapping[str, Any], str]:
    """All of a file, and the key of its table."""
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not JSON: {error}") from None
    found = [key for key in _FORMS if key in data] if isinstance(data, Mapping) else []
    if not found or not isinstance(data[found[0]], Mapping):
        raise UsageError('there is no table "mcpServers"')
    return data, found[0]


def _spec(name: str, entry: Any) -> ServerSpec:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for a server: letters, digits, spaces, . _ and -, 31 at most"
        )
    if not isinstance(entry, Mapping):
        raise UsageError(f"{name} is not an object with a command or a url")
    try:
        json.dumps(entry, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UsageError(f"{name} has half of a character, which no program can be given") from None
    command, url = _text(name, entry, "command"), _text(name, entry, "url")
    if bool(command) == bool(url):
        raise UsageError(f'{name} needs either "command" or "url"')
    if url and not re.match(r"https?://[^/\s]", url):
        raise UsageError(f"the url of {name} does not begin with http:// or https://")
    url = _filled(name, url)
    try:
        urlsplit(private.without_user(url))
    except ValueError:
        raise UsageError(f"the url of {name} is not the address of a server") from None
    if entry.get("type") == "sse":
        raise UsageError(f"{name}: servers of the old kind sse are not supported, only http")
    args = entry.get("args", [])
    if not isinstance(args, list) or not all(isinstance(one, str) for one in args):
        raise UsageError(f"the args of {name} are not a list of texts")
    return ServerSpec(
        name,
        _filled(name, command),
        tuple(_filled(name, one) for one in args),
        _texts(name, entry, "env"),
        _filled(name, _text(name, entry, "cwd")) or None,
        url,
        _texts(name, entry, "headers"),
        entry.get("disabled") is True,
        _seconds(name, entry, "timeout", LONGEST_CALL),
        _seconds(name, entry, "startup_timeout", LONGEST_START),
    )


def _text(name: str, entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str):
        raise UsageError(f"the {key} of {name} is not a text")
    return value


def _seconds(name: str, entry: Mapping[str, Any], key: str, default: float) -> float:
    value = entry.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 3600:
        raise UsageError(f"the {key} of {name} is not a number of seconds up to 3600")
    return float(value)


def _texts(name: str, entry: Mapping[str, Any], key: str) -> dict[str, str]:
    table = entry.get(key) or {}
    if not isinstance(table, Mapping) or not all(isinstance(v, str) for v in table.values()):
        raise UsageError(f"the {key} of {name} is not an object of texts")
    return {str(k): _filled(name, v) for k, v in table.items()}


def _filled(name: str, text: str) -> str:
    """A text with the variables of the environment that it names."""
    if "${input:" in text:
        raise UsageError(f"{name} asks for an input, which only VS Code can; use ${{env:NAME}}")

    def value(found: re.Match[str]) -> str:
        known = os.environ.get(found[1])
        if known is None:
            raise UsageError(f"{name} needs the environment variable {found[1]}, which is not set")
        return known

    return _VARIABLE.sub(value, text)


def elsewhere() -> dict[str, Path]:
    """Files of other programs that have servers, by the name of the program; none where there is no
    home, or where the user may not look.
    """
    try:
        home = paths.home()
    except UsageError:
        return {}
    if sys.platform == "darwin":
        settings = home / "Library" / "Application Support"
    elif sys.platform == "win32":
        settings = Path(os.environ.get("APPDATA", home / "AppData" / "Roaming"))
    else:
        settings = Path(os.environ.get("XDG_CONFIG_HOME", home / ".config"))
    known = {
        "Claude Desktop": settings / "Claude" / "claude_desktop_config.json",
        "LM Studio": home / ".lmstudio" / "mcp.json",
        "VS Code": settings / "Code" / "User" / "mcp.json",
        "Cursor": home / ".cursor" / "mcp.json",
    }
    return {name: file for name, file in known.items() if paths.is_file(file)}


def offer_once() -> str:
    """The names of other programs that have servers, to be offered to a user who has none; "" where
    there are none, or where that was said before.

    Raises:
        LocalspecError: it cannot be noted that it was said, or read.
    """
    found, note = ", ".join(elsewhere()), paths.state_dir() / "mcp-offered"
    if not found:
        return ""
    try:
        if path().exists() or note.exists():
            return ""
        paths.make_parent(note)
        note.touch(mode=0o600)
    except OSError as error:
        raise LocalspecError(f"cannot use {error.filename or note}: {error.strerror}") from None
    return found


def _mine() -> tuple[Mapping[str, Any], str]:
    """All of the user's file, and the key of its table; a new one where there is no file.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return _whole(closed.content(path(), _LARGEST + 1))
    except FileNotFoundError:
        return {}, _FORMS[0]
    except OSError as error:
        raise UsageError(f"cannot read {path()}: {error.strerror}") from None


def take_over() -> tuple[list[str], list[str]]:
    """Add the servers of other programs to the user's file: the names that were added, and a line
    for each that was not. Names that the file has stay as they are.

    Raises:
        UsageError: the file of the user cannot be read.
        LocalspecError: it cannot be written.
    """
    whole, form = _mine()
    table = dict(whole.get(form, {}))
    added, refused = [], []
    for program, file in elsewhere().items():
        try:
            entries = _table(checked.content(file, _LARGEST))
        except (OSError, UsageError) as error:
            refused.append(f"{program}: {error}")
            continue
        for name, entry in entries.items():
            if name in table:
                continue
            try:
                _spec(name, entry)
            except UsageError as error:
                refused.append(f"{program}: {error}")
                continue
            if alike := _called_alike(name, table):
                refused.append(f"{program}: {alike}")
                continue
            if len(table) >= MOST_SERVERS:
                refused.append(f"{program}: {name} would be more than {MOST_SERVERS} servers")
                continue
            table[name] = entry
            added.append(name)
    if added:
        text = json.dumps({**whole, form: table}, ensure_ascii=False, indent=2) + "\n"
        try:
            paths.make_parent(path())
            # Through links: it is often linked from dotfiles.
            whole_file.replace(path().resolve(), [text.encode("utf-8", "backslashreplace")])
        except OSError as error:
            raise LocalspecError(f"cannot write {path()}: {error.strerror}") from None
    return added, refused
