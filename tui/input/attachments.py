"""Files that a message names with ``@path``: their text is attached to it."""

from __future__ import annotations

import re
from pathlib import Path

from localspec.config import paths

_NAME = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]+)"|(\S+))')
"""A name with spaces is quoted."""
_AFTER = ".,;:!?)'\""
_LARGEST = 1 << 20
"""Largest file in bytes; more fits into no context."""


class AttachError(ValueError):
    """A file that cannot be attached; the text is for the user."""


class NoFileError(AttachError):
    """A word that looks like a path but names no file; the user may mean it as text."""


def attach(text: str, *, as_words: bool = False) -> str:
    """``text`` and the contents of the files it names.

    Names of missing files are text where they have no dot or slash, or with ``as_words``.

    Raises:
        NoFileError: a word that looks like a path names no file.
        AttachError: a file that is too large, not text, or not readable.
    """
    parts = [text]
    for name in dict.fromkeys(quoted or bare for quoted, bare in _NAME.findall(text)):
        if f"\n\n{name.rstrip(_AFTER)}:\n```" in text:
            continue  # an edited message has it already
        path = paths.expand(name)
        try:
            if not path.is_file():
                name = name.rstrip(_AFTER)  # noqa: PLW2901 - without the punctuation of the sentence
                path = paths.expand(name)
            if not name or (as_words and not path.is_file()):
                continue
            if not path.is_file():
                _refuse(name, path)
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


def _refuse(name: str, path: Path) -> None:
    """Raise for a missing file, unless the name looks like a plain word."""
    if not set("./\\") & set(name):
        return
    if path.is_dir():
        raise NoFileError(f"{name} is a folder; only text files can be attached")
    if path.exists():
        raise NoFileError(f"{name} is not a regular file; only text files can be attached")
    raise NoFileError(f"there is no file {name}")


def fenced(content: str) -> str:
    """A code block whose fence is longer than any run of backticks in ``content``."""
    longest = max((len(run) for run in re.findall(r"`{3,}", content)), default=2)
    fence = "`" * (longest + 1)
    end = "" if content.endswith("\n") else "\n"
    return f"{fence}\n{content}{end}{fence}"
