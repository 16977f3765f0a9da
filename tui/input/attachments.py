"""Files that a message names with ``@path``: their text goes along with it."""

from __future__ import annotations

import os
import re

from localspec.config import paths

_NAME = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]+)"|(\S+))')
"""A name with spaces stands in quotes."""
_AFTER = ".,;:!?)'\""
_LARGEST = 1 << 20
"""Bytes of a file; more fits no context that runs here."""


class AttachError(ValueError):
    """A file that cannot go along; the text is for the person."""


def attach(text: str) -> str:
    """``text`` and the contents of the files it names; a name of no file is just a word.

    Raises:
        AttachError: a file that is too large, not text, or not readable.
    """
    parts = [text]
    for name in dict.fromkeys(quoted or bare for quoted, bare in _NAME.findall(text)):
        if f"\n\n{name.rstrip(_AFTER)}:\n```" in text:
            continue  # a message that is edited holds it already
        path = paths.expand(name)
        try:
            if not path.is_file():
                name = name.rstrip(_AFTER)  # noqa: PLW2901 - what ends a sentence ends no name
                path = paths.expand(name)
            if name and path.is_dir() and name.endswith(os.sep):
                raise AttachError(f"{name} is a folder; only text files can be attached")
            if not name or not path.is_file():
                continue
            if path.stat().st_size > _LARGEST:
                raise AttachError(f"{name} is larger than 1 MB; attach a part of it")
            content = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            raise AttachError(f"{name} is not text; only text files can be attached") from None
        except (OSError, ValueError) as error:
            if isinstance(error, AttachError):
                raise
            reason = getattr(error, "strerror", None) or error
            raise AttachError(f"cannot read {name}: {reason}") from None
        parts.append(f"{name}:\n{fenced(content)}")
    return "\n\n".join(parts)


def fenced(content: str) -> str:
    """As a code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`{3,}", content)), default=2)
    fence = "`" * (longest + 1)
    end = "" if content.endswith("\n") else "\n"
    return f"{fence}\n{content}{end}{fence}"
