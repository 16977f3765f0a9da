"""A pair of the catalogue: a target, and its drafter."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from localspec.core import drafter_registry
from localspec.core.files import paths
from localspec.models.catalog.hf_cache import find_file, in_snapshot, snapshots
from localspec.models.gguf.shards import n_bytes, shard_names, shards

DRAFT_MODEL, MTP_EMBEDDED, NGRAM = "draft-model", "mtp-embedded", "ngram"

NOT_STATED = "not stated"

KINDS = tuple(kind for spec in drafter_registry.TABLE for kind in spec.pairs)
"""Values of a pair's ``drafting``."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A model file on disk."""

    path: Path

    @property
    def where(self) -> str:
        """Text for users."""
        return str(self.path)

    def found(self) -> Path | None:
        """The file, if it exists."""
        return self.path if paths.is_file(self.path) else None

    @property
    def size(self) -> int | None:
        """Bytes of all shards; None if one does not exist."""
        return n_bytes(self.path) if all(map(paths.is_file, shards(self.path))) else None

    @property
    def exact(self) -> bool:
        """Whether `size` is exact."""
        return True


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file in a model repository of the Hugging Face Hub."""

    repo: str
    file: str
    """Its path in the repository; of a model in shards, the first."""
    revision: str | None = None
    """A commit; None for the main branch at the time of the pull."""
    sha256: str | None = None
    """Hash of ``file``."""
    n_bytes: int | None = None
    approx_bytes: int | None = None

    @property
    def where(self) -> str:
        """Text for users."""
        return f"{self.repo} : {self.file}"

    def paths(self) -> tuple[Path, ...]:
        """The file and its other shards in the Hugging Face cache; empty unless all are there."""
        first = find_file(self.repo, self.file, self.revision, self.sha256)
        if first is None:
            return ()
        top, file = in_snapshot(self.repo, first)
        found = tuple(top / name for name in shard_names(file))
        return found if all(map(paths.is_file, found)) else ()

    def parts(self) -> tuple[Path, ...]:
        """Paths of the file, or of the shards of it that are here after an interrupted pull."""
        names, whole = shard_names(self.file), self.paths()
        if whole or len(names) == 1:
            return whole
        folders = [s for s in snapshots(self.repo) if self.revision in {None, s.name}]
        return tuple(p for s in folders for name in names if paths.is_file(p := s / name))

    def found(self) -> Path | None:
        """The file to open, if all shards are in the cache."""
        return next(iter(self.paths()), None)

    @property
    def size(self) -> int | None:
        """Bytes of all shards, exact or approximate; None if unknown."""
        if self.n_bytes is None and (found := self.paths()):
            return sum(path.stat().st_size for path in found)
        return self.n_bytes if self.n_bytes is not None else self.approx_bytes

    @property
    def exact(self) -> bool:
        """Whether `size` is exact."""
        return self.n_bytes is not None or bool(self.paths())


PairFile = LocalFile | HubFile


@dataclass(frozen=True, slots=True)
class Pair:
    """One entry of the catalogue."""

    name: str
    about: str
    """Its purpose, in one line."""
    target: PairFile
    draft: PairFile | None
    drafting: str
    """One of KINDS."""
    licence: str
    context: int | None
    """Tokens that the target was trained for."""
    draft_length: int | None
    """A good draft length K for programs that need a fixed one."""
    memory: int | None
    """Gigabytes of memory that the pair is meant for."""
    family: str | None
    """``general.architecture`` of the target."""
    traps: tuple[str, ...]
    acceptance: int | None
    """Percent of verified drafted tokens that are typically accepted."""
    reads: int | None
    """Percent of the target that passes read at all; None: all of it."""
    active: int | None
    """Percent of that which one token needs; None: all of it."""
    sees: bool
    """Whether its repository has a projector, with which the target sees pictures."""

    @property
    def files(self) -> tuple[PairFile, ...]:
        """The files that a pull fetches."""
        return (self.target,) if self.draft is None else (self.target, self.draft)

    @property
    def installed(self) -> bool:
        """Whether its files are on this machine."""
        return all(file.found() is not None for file in self.files)

    @property
    def n_bytes(self) -> int | None:
        """Bytes of its files, exact or approximate; None if the target's size is unknown."""
        if self.target.size is None:
            return None
        return sum(file.size or 0 for file in self.files)

    @property
    def exact(self) -> bool:
        """Whether `n_bytes` is exact."""
        return all(file.exact for file in self.files)
