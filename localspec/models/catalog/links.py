"""Parses names and links of models on the Hub, typed or copied from a browser.

::

    user/repo                      user/repo@REVISION            user/repo/FILE.gguf
    user/repo:QUANT                user/repo@REVISION:QUANT      hf.co/user/repo:QUANT
    https://huggingface.co/user/repo/blob/REVISION/FILE.gguf?download=true
    https://huggingface.co/user/repo/tree/REVISION/FOLDER
    hf://models/user/repo@REVISION/FILE.gguf

A revision is a branch, a tag, a commit, or ``refs/pr/NUMBER`` for a pull request.

The variables of huggingface_hub that say where it is are read in the same way as there.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

_TRUE = frozenset({"1", "ON", "YES", "TRUE"})

_HOSTS = frozenset({"hf.co", "huggingface.co", "www.huggingface.co", "www.hf.co"})
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_PLAIN = re.compile(r"(?P<repo>[^/:@]+/[^/:@]+)(?:@(?P<revision>[^:]*))?(?:[:/](?P<tag>[^:]+))?")
_AT = re.compile(r"(?P<revision>refs/(?:pr|convert)/[^/:]+|[^/:]+)(?:/(?P<path>.*))?")
_LONG_REVISION = re.compile(r"refs/(?:pr|convert|heads|tags)/[^/]+")
_REVISION = re.compile(r"[\w][\w.+/-]{0,199}", re.ASCII)
_KINDS = frozenset({"datasets", "spaces", "kernels", "buckets", "api", "docs", "collections"})
"""First parts of addresses that are not names of users."""
_FILES = frozenset({"tree", "blob", "resolve", "raw", "blame", "commits"})
MAIN = "main"


def is_true(name: str) -> bool:
    """Whether a variable is set to a true value."""
    return os.environ.get(name, "").upper() in _TRUE


def forbidding_variable() -> str | None:
    """The variable that forbids connections; None if none does."""
    name = "HF_HUB_OFFLINE" if os.environ.get("HF_HUB_OFFLINE") else "TRANSFORMERS_OFFLINE"
    return name if is_true(name) else None


def is_offline() -> bool:
    """Whether the environment forbids connections."""
    return forbidding_variable() is not None


def host_of(address: str) -> str:
    """Host of an address in lower case; empty if there is none."""
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""


@dataclass(frozen=True, slots=True)
class HubRef:
    """A model on the Hub by name."""

    repo: str
    tag: str | None = None
    """A quantization, a file name, or a folder with a slash at its end."""
    revision: str | None = None
    """A branch, tag, commit or pull request; None for the main branch."""

    def __str__(self) -> str:
        at = "" if self.revision is None else f"@{self.revision}"
        return self.repo + at + ("" if self.tag is None else f":{self.tag}")


def parse_hub_ref(name: str) -> HubRef | None:
    """The model that a name or link denotes; None if it cannot be one of the Hub."""
    text = name.strip()
    scheme, mark, rest = text.partition("://")
    if mark and scheme.lower() == "hf":
        return _plain(unquote(rest.removeprefix("models/")).rstrip("/"))
    if mark and scheme.lower() not in {"http", "https"}:
        return None
    address = text if mark else f"https://{text}"
    if host_of(address) in _hosts():
        return _link(address)
    return None if mark else _plain(text)


def _hosts() -> frozenset[str]:
    """Hosts of the Hub: its own, and that of a mirror."""
    mirror = host_of(os.environ.get("HF_ENDPOINT", "").strip())
    return _HOSTS | {mirror} if mirror else _HOSTS


def _plain(text: str) -> HubRef | None:
    """Parse a name without a host: ``user/repo`` with ``@REVISION``, ``:QUANT`` or ``/FILE``."""
    found = _PLAIN.fullmatch(unquote(text).rstrip("/"))
    if found is None:
        return None
    revision, tag = found["revision"], found["tag"]
    if revision is not None and ":" not in text:  # a file may follow the revision
        parts = _AT.fullmatch(revision)
        if parts is None:
            return None
        if parts["path"] and parts["path"].lower().endswith(".gguf"):
            revision, tag = parts["revision"], parts["path"]
    return _checked(found["repo"], tag, revision)


def _link(address: str) -> HubRef | None:
    """Parse the address of a page or file; its query matters only where it selects a file."""
    parts = urlsplit(address)
    steps = [step for step in parts.path.split("/") if step]
    if len(steps) < 2:
        return None
    repo, further = "/".join(unquote(step) for step in steps[:2]), steps[2:]
    if ":" in repo or "@" in repo:
        return _plain(unquote(parts.path.strip("/")))
    kind = further[0] if further else ""
    if kind == "discussions" and len(further) > 1:
        return _checked(repo, None, f"refs/pr/{further[1]}")
    if kind == "commit" and len(further) > 1:
        return _checked(repo, None, further[1])
    if kind not in _FILES:
        return _checked(repo, "/".join(unquote(step) for step in further) or None, None)
    revision, path = _split(further[1:])
    chosen = parse_qs(parts.query).get("show_file_info")
    if chosen:
        path = chosen[0]
    elif kind == "tree" and path:
        path += "/"
    return _checked(repo, path or None, revision)


def _split(steps: list[str]) -> tuple[str | None, str]:
    """Revision and path in the rest of an address after ``tree``, ``blob`` and the like."""
    if not steps:
        return None, ""
    if len(steps) > 2 and _LONG_REVISION.fullmatch("/".join(steps[:3])):
        return "/".join(steps[:3]), "/".join(unquote(step) for step in steps[3:])
    return unquote(steps[0]), "/".join(unquote(step) for step in steps[1:])


def _checked(repo: str, tag: str | None, revision: str | None) -> HubRef | None:
    """The reference, if repository, tag and revision are valid names."""
    if not _REPO.fullmatch(repo) or ".." in repo or _kind(repo) in _KINDS:
        return None
    if ".." in (tag or "").split("/"):
        return None
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        return None
    plain = revision in {None, MAIN, f"refs/heads/{MAIN}"}
    latest = tag is None or tag.lower() == "latest"
    return HubRef(repo, None if latest else tag, None if plain else revision)


def _kind(repo: str) -> str:
    return repo.split("/", maxsplit=1)[0].lower()
