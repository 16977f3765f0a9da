"""models.toml, the shipped catalogue and the user's own, as typed values; and what else is in the
Hugging Face cache.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from pathlib import Path

from localspec.core.errors import UsageError
from localspec.core.files import paths
from localspec.models.catalog import hf_cache
from localspec.models.catalog.links import HubRef
from localspec.models.catalog.pair import HubFile, Pair


def shipped() -> Path:
    """Path of the catalogue that came with localspec: in the wheel, or at the top of a checkout."""
    inside = Path(__file__).parents[2] / "models.toml"
    return inside if inside.is_file() else Path(__file__).parents[3] / "models.toml"


@functools.cache
def catalog() -> dict[str, Pair]:
    """All pairs by name; the user's own file adds pairs and overrides fields.

    Raises:
        UsageError: a file is invalid, with its line and field, or cannot be read.
    """
    from localspec.models.catalog.toml_file import Document

    ours, own = Document.read(shipped(), shipped=True), paths.config_dir() / "models.toml"
    pairs = {name: ours.pair(name) for name in ours.names}
    try:
        there = own.is_file()
    except OSError as error:
        raise UsageError(f"cannot read {own}: {error.strerror}") from None
    if there:
        theirs = Document.read(own)
        pairs |= {name: theirs.pair(name, ours) for name in theirs.names}
    return pairs


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model in the cache, which can be used by ``name``."""

    name: str
    """user/repo:file"""
    path: Path
    """Its file, or the first shard."""
    n_bytes: int


def uncatalogued() -> list[CachedModel]:
    """Each model once, from the newest snapshot that has it, sorted by name."""
    listed = {
        (file.repo, file.file)
        for pair in catalog().values()
        for file in (pair.target, pair.draft)
        if isinstance(file, HubFile)
    }
    found: dict[str, CachedModel] = {}
    for repo in hf_cache.repos():
        for snapshot, candidates in hf_cache.models(HubRef(repo)):
            for candidate in candidates:
                first, name = candidate.first.path, f"{repo}:{candidate.first.path}"
                if candidate.whole and (repo, first) not in listed and name not in found:
                    found[name] = CachedModel(name, snapshot / first, candidate.n_bytes)
    return [found[name] for name in sorted(found)]


def unfinished() -> dict[str, int]:
    """Bytes of what interrupted pulls left, by repository: parts of files, and models without all
    of their shards.
    """
    found: dict[str, int] = {}
    for repo in hf_cache.repos():
        parts = dict[Path, int]()
        for part in hf_cache.partials(repo):
            with contextlib.suppress(OSError):  # it was completed meanwhile
                parts[part] = part.stat().st_size
        for snapshot, candidates in hf_cache.models(HubRef(repo)):
            lacking = (entry for model in candidates if not model.whole for entry in model.entries)
            parts |= {(snapshot / one.path).resolve(): one.size for one in lacking}
        if parts:
            found[repo] = sum(parts.values())
    return found
