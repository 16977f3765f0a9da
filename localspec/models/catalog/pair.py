"""A pair of the catalogue: a target, and how it is drafted for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from localspec.core import drafter_registry
from localspec.models.hub.file_names import shard_names
from localspec.models.hub.hf_cache import find_file, in_snapshot

DRAFT_MODEL, MTP_EMBEDDED, NGRAM = "draft-model", "mtp-embedded", "ngram"

NOT_STATED = "not stated"

KINDS = tuple(kind for spec in drafter_registry.TABLE for kind in spec.pairs)
"""How a target can be drafted for."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A model file on disk."""

    path: Path

    @property
    def where(self) -> str:
        """For people."""
        return str(self.path)

    def found(self) -> Path | None:
        """The file, if it is here."""
        return self.path if self.path.is_file() else None

    @property
    def size(self) -> int | None:
        """Bytes; None if it is not here."""
        return self.path.stat().st_size if self.path.is_file() else None

    @property
    def exact(self) -> bool:
        """Whether the size is known to the byte."""
        return True


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file in a model repository of the Hugging Face Hub."""

    repo: str
    file: str
    """Its path in the repository; of a model in shards, the first."""
    revision: str | None = None
    """A commit. None takes what the main branch holds when it is pulled."""
    sha256: str | None = None
    """Of the file named."""
    n_bytes: int | None = None
    approx_bytes: int | None = None

    @property
    def where(self) -> str:
        """For people."""
        return f"{self.repo} : {self.file}"

    def paths(self) -> tuple[Path, ...]:
        """It and its other shards in the Hugging Face cache; none unless all are there."""
        first = find_file(self.repo, self.file, self.revision, self.sha256)
        if first is None:
            return ()
        top, file = in_snapshot(self.repo, first)
        paths = tuple(top / name for name in shard_names(file))
        return paths if all(path.is_file() for path in paths) else ()

    def found(self) -> Path | None:
        """The file to load, if all of the model is here."""
        return next(iter(self.paths()), None)

    @property
    def size(self) -> int | None:
        """Bytes of all shards, as near as is known."""
        if self.n_bytes is None and (paths := self.paths()):
            return sum(path.stat().st_size for path in paths)
        return self.n_bytes if self.n_bytes is not None else self.approx_bytes

    @property
    def exact(self) -> bool:
        """Whether the size is known to the byte."""
        return self.n_bytes is not None or bool(self.paths())


PairFile = LocalFile | HubFile


@dataclass(frozen=True, slots=True)
class Pair:
    """One entry of the catalogue."""

    name: str
    about: str
    """What it is for, in one line."""
    target: PairFile
    draft: PairFile | None
    drafting: str
    """One of KINDS."""
    licence: str
    context: int | None
    """Tokens that the target was trained for."""
    draft_length: int | None
    """A good K for programs that need one."""
    memory: int | None
    """Gigabytes of memory that it is meant for."""
    family: str | None
    """``general.architecture`` of the target."""
    traps: tuple[str, ...]
    where: Path
    """The models.toml that it comes from."""

    @property
    def files(self) -> tuple[PairFile, ...]:
        """What a pull brings."""
        return (self.target,) if self.draft is None else (self.target, self.draft)

    @property
    def installed(self) -> bool:
        """Whether its files are here."""
        return all(file.found() is not None for file in self.files)

    @property
    def n_bytes(self) -> int | None:
        """Size of its files, as near as is known; None if that of the target is not."""
        if self.target.size is None:
            return None
        return sum(file.size or 0 for file in self.files)

    @property
    def exact(self) -> bool:
        """Whether that size is known to the byte."""
        return all(file.exact for file in self.files)
