"""Reads a models.toml into pairs; errors name the line."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, cast

from localspec.config import settings
from localspec.core.errors import UsageError
from localspec.core.files import checked, closed, paths
from localspec.core.files.paths import DEMO_DIR
from localspec.models.catalog.pair import (
    DRAFT_MODEL,
    KINDS,
    NGRAM,
    NOT_STATED,
    HubFile,
    LocalFile,
    Pair,
    PairFile,
)

_EMBEDDED = "embedded:"
_PAIR_FIELDS = (
    *("about", "target", "draft", "drafting", "licence", "context", "draft_length"),
    *("memory", "family", "traps", "acceptance", "reads", "active", "sees"),
)
_FILE_FIELDS = ("repo", "file", "revision", "sha256", "bytes", "approx_bytes")
_REPO = re.compile(r"[\w.-]+/[\w.-]+")
_COMMIT, _SHA256 = re.compile(r"[0-9a-f]{40}"), re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Document:
    """A models.toml: its text, to find lines in, and its tables."""

    path: Path
    text: str
    tables: dict[str, object]

    @classmethod
    def read(cls, path: Path, *, shipped: bool = False) -> Document:
        """Read a file; one that is ``shipped`` is trusted as our code is.

        Raises:
            UsageError: the file cannot be read, or is not TOML; the message names the line.
        """
        try:
            text = settings.read_text(path, checked.content if shipped else closed.content)
            return cls(path, text, settings.parse_toml(path, text))
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from None

    @property
    def names(self) -> list[str]:
        """Names of its pairs, in the order of the file."""
        return list(self.tables)

    def pair(self, name: str, base: Document | None = None) -> Pair:
        """One pair; missing fields are taken from the pair of that name in ``base``.

        Raises:
            UsageError: a field is missing, unknown or invalid.
        """
        table = self.tables[name]
        if not isinstance(table, dict):
            self.refuse(name, None, f"{name!r} must be a table")
        under = base.tables.get(name, {}) if base is not None else {}
        fields = _Fields(self, name, cast("dict[str, object]", table))
        fields.known(_PAIR_FIELDS)
        inherited = _Fields(base, name, cast("dict[str, object]", under)) if base else None
        return fields.pair(inherited)

    def refuse(self, name: str, key: str | None, what: str) -> NoReturn:
        """Raise a UsageError about a pair, or about one of its fields."""
        raise UsageError(f"{self.path}, line {self.line(name, key)}: {what}")

    def line(self, name: str, key: str | None) -> int:
        """Line of a pair, or of one of its fields."""
        quoted = re.escape(name)
        title = re.compile(rf"\s*\[?\s*[\"']?{quoted}[\"']?\s*(\]|=|\.)")
        sub = re.compile(rf"\s*\[\s*[\"']?{quoted}[\"']?\s*\.\s*[\"']?(?P<key>[\w-]+)")
        found, inside = 1, False
        for number, text in enumerate(self.text.splitlines(), 1):
            at = sub.match(text)
            if at and at["key"] == key:
                return number
            if title.match(text) and (text.lstrip().startswith("[") or not inside):
                found, inside = number, True
            elif text.lstrip().startswith("["):
                inside = False
            elif inside and key and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[.=]", text):
                return number
        return found


@dataclass(frozen=True, slots=True)
class _Fields:
    """The table of one pair."""

    document: Document
    name: str
    table: dict[str, object]

    def known(self, names: tuple[str, ...]) -> None:
        for key in self.table:
            if key not in names:
                close = difflib.get_close_matches(key, names, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                self.refuse(key, f"has an unknown {key!r}{hint}")

    def refuse(self, key: str | None, what: str) -> NoReturn:
        self.document.refuse(self.name, key, f"pair {self.name!r} {what}")

    def pair(self, under: _Fields | None) -> Pair:
        def at(key: str) -> _Fields:
            return self if under is None or key in self.table else under

        target, draft = at("target").file("target"), at("draft").file("draft")
        if target is None:
            self.refuse(None, "needs a 'target'")
        drafting = at("drafting").text("drafting", DRAFT_MODEL if draft is not None else NGRAM)
        if drafting not in KINDS:
            known = ", ".join(KINDS)
            self.refuse("drafting", f"has the drafting {drafting!r}; there are {known}")
        return Pair(
            name=self.name,
            about=at("about").text("about", ""),
            target=target,
            draft=draft,
            drafting=drafting,
            licence=at("licence").text("licence", NOT_STATED),
            context=at("context").number("context"),
            draft_length=at("draft_length").number("draft_length"),
            memory=at("memory").number("memory"),
            family=at("family").text("family", "") or None,
            traps=at("traps").texts("traps"),
            acceptance=at("acceptance").percent("acceptance"),
            reads=at("reads").percent("reads"),
            active=at("active").percent("active"),
            sees=at("sees").switch("sees"),
        )

    def text(self, key: str, default: str) -> str:
        value = self.table.get(key, default)
        if not isinstance(value, str):
            self.refuse(key, f"needs a text {key!r}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            self.refuse(key, f"needs a list of texts {key!r}")
        return tuple(value)

    def switch(self, key: str) -> bool:
        value = self.table.get(key, False)
        if not isinstance(value, bool):
            self.refuse(key, f"needs true or false {key!r}")
        return value

    def number(self, key: str) -> int | None:
        return self.positive(key, self.table, key)

    def percent(self, key: str) -> int | None:
        value = self.number(key)
        if value is not None and value > 100:
            self.refuse(key, f"needs a percentage up to 100 as {key!r}")
        return value

    def positive(self, key: str, table: dict[str, object], place: str) -> int | None:
        value = table.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.refuse(place, f"needs a positive whole number {key!r}")
        return value

    def file(self, key: str) -> PairFile | None:
        value = self.table.get(key)
        if value is None:
            return None
        table = value if isinstance(value, dict) else {"file": value}
        source = _Source(self, key, cast("dict[str, object]", table))
        name, repo = source.text("file"), source.text("repo")
        source.known()
        if not name:
            source.refuse("needs a text 'file'")
        if repo is None:
            return LocalFile(self._on_disk(name))
        if not _REPO.fullmatch(repo):
            source.refuse(f"names the repo {repo!r}; it must be user/name")
        if not name.endswith(".gguf") or name.startswith("/") or ".." in name.split("/"):
            source.refuse(f"names {name!r}; it must be a .gguf file of the repo")
        return HubFile(
            repo,
            name,
            revision=source.matching("revision", _COMMIT, "40: a commit, not a branch"),
            sha256=source.matching("sha256", _SHA256, "64"),
            n_bytes=self.positive("bytes", source.table, key),
            approx_bytes=self.positive("approx_bytes", source.table, key),
        )

    def _on_disk(self, name: str) -> Path:
        if name.startswith(_EMBEDDED):
            return DEMO_DIR / name.removeprefix(_EMBEDDED)
        if "\0" in name:
            self.document.refuse(self.name, None, f"{name!r} cannot be a file")
        return (self.document.path.parent / paths.expand(name)).resolve()


@dataclass(frozen=True, slots=True)
class _Source:
    """The table of one file."""

    fields: _Fields
    key: str
    table: dict[str, object]

    def refuse(self, what: str) -> NoReturn:
        name = self.fields.name
        self.fields.document.refuse(name, self.key, f"pair {name!r}, {self.key!r} {what}")

    def known(self) -> None:
        for field in self.table:
            if field not in _FILE_FIELDS:
                self.refuse(f"has an unknown {field!r}; there are {', '.join(_FILE_FIELDS)}")

    def text(self, field: str) -> str | None:
        found = self.table.get(field)
        if found is not None and not isinstance(found, str):
            self.refuse(f"needs a text {field!r}")
        return found

    def matching(self, field: str, pattern: re.Pattern[str], digits: str) -> str | None:
        found = self.text(field)
        if found is not None and not pattern.fullmatch(found):
            self.refuse(f"needs a {field} of hexadecimal digits, {digits}")
        return found
