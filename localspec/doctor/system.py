"""Checks of Python, the packages that localspec needs, and the terminal."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator

from localspec import __version__
from localspec.doctor.findings import Finding, in_checkout

_PACKAGES = (
    "click",
    "huggingface-hub",
    "jinja2",
    "llama-cpp-python",
    "numpy",
    "platformdirs",
    "psutil",
    "textual",
)
_PYTHON = (3, 11)
_COLUMNS, _ROWS = 80, 24
"""Smallest terminal that the chat is made for: columns and rows."""


def check() -> Iterator[Finding]:
    """Python and packages."""
    text = f"localspec {__version__}, Python {platform.python_version()}, {platform.platform()}"
    if sys.version_info[:2] < _PYTHON:
        fix = "install Python 3.11 or newer"
        yield Finding("python", "broken", f"{text}: too old", fix)
    else:
        yield Finding("python", "ok", text)
    versions = {name: _version(name) for name in _PACKAGES}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        fix = "scripts/localspec doctor" if in_checkout() else f"pip install {' '.join(missing)}"
        text = f"not installed: {', '.join(missing)}"
        yield Finding("packages", "broken", text, fix, versions)
    else:
        text = ", ".join(f"{name} {version}" for name, version in versions.items())
        yield Finding("packages", "ok", text, details=versions)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def terminal() -> Finding:
    """Size, colours and encoding of the terminal, and what the chat cannot do in it."""
    if not sys.stdout.isatty():
        return Finding("terminal", "note", "stdout is no terminal: chat would read lines")
    columns, rows = shutil.get_terminal_size()
    colours, encoding = _colours(), (sys.stdout.encoding or "unknown").lower()
    text = f"{columns}×{rows}, {colours}, {encoding}"
    details = {"columns": columns, "rows": rows, "colours": colours, "encoding": encoding}
    if not encoding.startswith("utf"):
        fix = "set LC_ALL=C.UTF-8, so that signs beyond ASCII are shown"
        return Finding("terminal", "note", text, fix, details)
    if colours == "no colours":
        fix = "unset NO_COLOR and set TERM=xterm-256color, unless that is meant"
        return Finding("terminal", "note", text, fix, details)
    if columns < _COLUMNS or rows < _ROWS:
        fix = f"make it {_COLUMNS}×{_ROWS} or larger: the chat is cramped in less"
        return Finding("terminal", "note", text, fix, details)
    return Finding("terminal", "ok", text, details=details)


def _colours() -> str:
    term = os.environ.get("TERM", "")
    if os.environ.get("NO_COLOR") or term in {"", "dumb"}:
        return "no colours"
    if os.environ.get("COLORTERM") in {"truecolor", "24bit"}:
        return "16 million colours"
    return "256 colours" if "256" in term else "16 colours"
