"""Models in the Hugging Face cache that are not in the catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from localspec.models.catalog.catalog import catalog
from localspec.models.catalog.pair import HubFile
from localspec.models.hub import hf_cache
from localspec.models.hub.links import HubRef


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
                whole = len(candidate.entries) == candidate.count
                if whole and (repo, first) not in listed and name not in found:
                    found[name] = CachedModel(name, snapshot / first, candidate.n_bytes)
    return [found[name] for name in sorted(found)]
