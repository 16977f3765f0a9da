"""Models in the Hugging Face cache that no pair of the catalogue names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from localspec.models.catalog.catalog import catalog
from localspec.models.catalog.pair import HubFile
from localspec.models.hub import file_names, hf_cache


@dataclass(frozen=True, slots=True)
class Found:
    """A model that `run` and `chat` take by ``name``."""

    name: str
    """user/repo:file"""
    path: Path
    """Of its first shard."""
    n_bytes: int


def others() -> list[Found]:
    """Each once, of the newest snapshot that has it; in the order of their names."""
    listed = {
        (file.repo, file.file)
        for pair in catalog().values()
        for file in (pair.target, pair.draft)
        if isinstance(file, HubFile)
    }
    found: dict[str, Found] = {}
    for repo in hf_cache.repos():
        for snapshot in hf_cache.snapshots(repo):
            files = hf_cache.cached_files(snapshot)
            entries = [file_names.Entry(path, size) for path, size in files.items()]
            for candidate in file_names.candidates(entries, file_names.Wanted(repo)):
                first, name = candidate.first.path, f"{repo}:{candidate.first.path}"
                whole = len(candidate.entries) == candidate.count
                if whole and (repo, first) not in listed and name not in found:
                    found[name] = Found(name, snapshot / first, candidate.n_bytes)
    return [found[name] for name in sorted(found)]
