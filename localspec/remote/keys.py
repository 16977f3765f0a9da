"""The API key of a server: from the environment, or from a command of the user's key ring.

A key is held in memory only. It is never part of an error, a log or a file of ours.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess

from localspec.config import settings as config_settings
from localspec.core import settings_schema as schema
from localspec.core.errors import AccessError, UsageError
from localspec.core.processes import commands
from localspec.remote.address import Address

OWN = "LOCALSPEC_API_KEY"
OPENAI = "OPENAI_API_KEY"
_PATIENCE = 60.0
"""Seconds; a key ring may ask the user for its password."""
_LONGEST = 4096


class Key:
    """A key, or none; it does not show itself."""

    __slots__ = ("_text",)

    def __init__(self, text: str | None = None) -> None:
        """Without a text there is no key."""
        self._text = text

    def __bool__(self) -> bool:
        """Whether there is a key."""
        return self._text is not None

    def __repr__(self) -> str:
        """Not the key."""
        return "Key(...)" if self else "Key()"

    @property
    def headers(self) -> dict[str, str]:
        """The header of a request."""
        return {"Authorization": f"Bearer {self._text}"} if self._text is not None else {}

    def hidden(self, text: str) -> str:
        """A text of the server without the key, which it may repeat, also in other letters."""
        if not self._text:
            return text
        return re.sub(re.escape(self._text), "(the key)", text, flags=re.IGNORECASE)


def find(address: Address) -> Key:
    """The key for a server: LOCALSPEC_API_KEY, api_key_command of config.toml, OPENAI_API_KEY.

    The last one was meant for another server, perhaps, so it never travels unencrypted.

    Raises:
        UsageError: it cannot be a key.
        AccessError: the command fails.
    """
    if text := os.environ.get(OWN):
        return _checked(text, OWN)
    command = config_settings.value(schema.API_KEY_COMMAND)
    if command is not None:
        return _checked(_asked(str(command)), "api_key_command")
    if (text := os.environ.get(OPENAI)) and address.encrypted:
        return _checked(text, OPENAI)
    return Key()


def _asked(command: str) -> str:
    """The key that a command prints.

    Raises:
        UsageError: it is no command.
        AccessError: it fails.
    """
    place = config_settings.place(schema.API_KEY_COMMAND.name)
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if not words:
        raise UsageError(f"this is no command: {command!r} (set by {place})")
    try:
        done = commands.run(words, _PATIENCE, stdin=None, stderr=None)  # it may ask the user
    except subprocess.TimeoutExpired:
        raise AccessError(f"{words[0]} gave no key within {_PATIENCE:.0f} s ({place})") from None
    except OSError as error:
        raise AccessError(f"cannot run {words[0]}: {error.strerror} ({place})") from None
    if done.returncode != 0:
        raise AccessError(f"{words[0]} ended with status {done.returncode} ({place})")
    return done.stdout.decode("utf-8", "replace")


def _checked(text: str, place: str) -> Key:
    """A key that fits into a header.

    Raises:
        UsageError: it does not; the message does not repeat it.
    """
    text = text.strip()
    if not text or len(text) > _LONGEST or not (text.isascii() and text.isprintable()):
        raise UsageError(f"{place} does not hold a key: one line of ASCII without control signs")
    return Key(text)
