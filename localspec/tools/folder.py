"""Reading below one folder: the tools of localspec itself. They write nothing and run nothing."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from localspec.core.errors import LocalspecError, ToolError
from localspec.core.files import paths
from localspec.media import documents
from localspec.tools.values import OfferedTool

_MOST_ENTRIES = 200
_MOST_LINES = 400
_MOST_HITS = 60
_SEARCH_SECONDS = 10.0
_SEARCHED_BYTES = 64 << 20
_LARGEST_SEARCHED = 4 << 20
"""Bytes of a file that a search looks into."""
_WHOLE_NUMBER = {"type": "integer", "minimum": 1}

_LIST = OfferedTool(
    "",
    "list_files",
    "List files and folders below the folder that the user has opened.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
_READ = OfferedTool(
    "",
    "read_file",
    "Read a text file, PDF or notebook of the user's folder, from first_line on.",
    {
        "type": "object",
        "properties": {"path": {"type": "string"}, "first_line": _WHOLE_NUMBER},
        "required": ["path"],
    },
)
_SEARCH = OfferedTool(
    "",
    "search_files",
    "Find the lines of files in the user's folder that contain a text; case does not matter.",
    {
        "type": "object",
        "properties": {"text": {"type": "string"}, "path": {"type": "string"}},
        "required": ["text"],
    },
)


class Folder:
    """One folder and its tools. Nothing outside of it is read, by no path and no link."""

    def __init__(self, path: Path) -> None:
        """The folder that the user has opened.

        Raises:
            ToolError: there is none, or it cannot be read.
        """
        try:
            self.path = paths.expand(str(path)).resolve(strict=True)
            if not self.path.is_dir():
                raise ToolError(f"{path} is not a folder")
            with os.scandir(self.path) as entries:
                next(entries, None)
        except (OSError, RuntimeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ToolError(f"cannot read the folder {path}: {reason}") from None

    @property
    def tools(self) -> tuple[OfferedTool, ...]:
        """The tools that the model is told of."""
        return (_LIST, _READ, _SEARCH)

    def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """The result of a call. Blocks while files are read.

        Raises:
            ToolError: there is no such file, or it cannot be read.
        """
        calls: dict[str, Callable[[Mapping[str, Any]], str]] = {
            _LIST.tool: self._list,
            _READ.tool: self._read,
            _SEARCH.tool: self._search,
        }
        try:
            return calls[tool](arguments)
        except OSError as error:
            raise ToolError(f"cannot read it: {error.strerror}") from None
        except (TypeError, ValueError, OverflowError) as error:  # no grammar made them
            raise ToolError(f"these are no arguments of {tool}: {error}") from None

    def _place(self, arguments: Mapping[str, Any]) -> Path:
        """The file or folder that the arguments name.

        Raises:
            ToolError: it is not there, or not below the folder.
        """
        name = str(arguments.get("path") or ".")
        try:
            found = self.path / name.lstrip("/\\") if name in {"/", "\\"} else self.path / name
            found = found.resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            raise ToolError(f"there is no {name[:200]!r} in the folder") from None
        if found != self.path and self.path not in found.parents:
            raise ToolError(f"{name[:200]!r} is outside of the folder")
        return found

    def _name(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    def _list(self, arguments: Mapping[str, Any]) -> str:
        place = self._place(arguments)
        if not place.is_dir():
            return f"{self._name(place)}\t{place.stat().st_size:,} bytes"
        rows, more = list[str](), 0
        with os.scandir(place) as entries:
            found = sorted(entries, key=lambda one: one.name)
        for entry in found:
            if len(rows) == _MOST_ENTRIES:
                more += 1
                continue
            folder = entry.is_dir(follow_symlinks=False)
            size = "" if folder else f"\t{entry.stat(follow_symlinks=False).st_size:,} bytes"
            rows.append(f"{entry.name}{'/' if folder else ''}{size}")
        if more:
            rows.append(f"… and {more:,} more; ask for a folder below this one")
        return "\n".join(rows) or "(an empty folder)"

    def _read(self, arguments: Mapping[str, Any]) -> str:
        place = self._place(arguments)
        if not place.is_file():
            raise ToolError(f"{self._name(place)} is not a file; list_files shows what is in it")
        try:
            text = documents.text_of(place)
        except LocalspecError as error:
            raise ToolError(str(error)) from None
        lines = text.splitlines()
        first = max(1, int(arguments.get("first_line") or 1))
        shown = lines[first - 1 : first - 1 + _MOST_LINES]
        rest = len(lines) - (first - 1 + len(shown))
        if not shown:
            return f"(the file has {len(lines):,} lines)"
        end = (
            f"\n… {rest:,} more lines, from first_line {first + len(shown)} on" if rest > 0 else ""
        )
        return "\n".join(shown) + end

    def _search(self, arguments: Mapping[str, Any]) -> str:
        text = str(arguments.get("text") or "").strip()
        if not text:
            raise ToolError("search_files needs a text to look for")
        pattern = re.compile(re.escape(text), re.IGNORECASE)
        end, budget, hits = time.monotonic() + _SEARCH_SECONDS, _SEARCHED_BYTES, list[str]()
        cut = ""
        for file in self._files(self._place(arguments)):
            if time.monotonic() > end or budget <= 0 or len(hits) >= _MOST_HITS:
                cut = "\n… there is more; look for a longer text, or in a folder below"
                break
            try:
                if file.stat().st_size > _LARGEST_SEARCHED:
                    continue
                content = file.read_bytes()
            except OSError:
                continue  # one file that cannot be read hides no others
            budget -= len(content)
            if b"\0" in content[:8192]:
                continue
            lines = content.decode("utf-8", "replace").splitlines()
            found = (
                f"{self._name(file)}:{number}: {line.strip()[:200]}"
                for number, line in enumerate(lines, 1)
                if pattern.search(line)
            )
            hits += itertools.islice(found, _MOST_HITS - len(hits))
        return "\n".join(hits) + cut if hits or cut else f"no line contains {text[:200]!r}"

    def _files(self, place: Path) -> Iterator[Path]:
        """Files below a place, without hidden folders; links are not followed."""
        if place.is_file():
            yield place
            return
        for folder, names, files in os.walk(place):
            names[:] = sorted(name for name in names if not name.startswith("."))
            for name in sorted(files):
                file = Path(folder, name)
                if not file.is_symlink() and file.is_file():
                    yield file
