"""A planned pull: the files, their sizes, and what the user should know about them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from localspec.core.errors import LocalspecError, OutOfMemoryError
from localspec.core.units import size
from localspec.models.catalog import hf_cache
from localspec.models.catalog.file_names import RepoFile
from localspec.models.catalog.pair import NOT_STATED, Pair
from localspec.models.gguf.header import Header
from localspec.models.hub import api, byte_ranges
from localspec.models.hub.download_jobs import DownloadJob
from localspec.models.memory.fit import TOO_BIG


@dataclass(frozen=True, slots=True)
class PullPart:
    """A model of the pair, or the target's projector: files on the Hub, or a local file."""

    role: str
    """``target``, ``draft`` or ``projector``."""
    header: Header
    repo: api.Repo | None
    entries: tuple[RepoFile, ...]
    path: Path | None
    """A local file outside the cache."""
    branch: str | None

    @property
    def n_bytes(self) -> int:
        """Bytes of all its files."""
        return self.header.size if self.repo is None else sum(e.size for e in self.entries)

    @property
    def where(self) -> str:
        """Text for users."""
        return str(self.path) if self.repo is None else f"{self.repo.name} : {self.entries[0].path}"

    @property
    def jobs(self) -> tuple[DownloadJob, ...]:
        """The files to get, shard by shard."""
        if self.repo is None:
            return ()
        return tuple(
            DownloadJob(self.repo.name, self.repo.commit, e, self.branch) for e in self.entries
        )


@dataclass(frozen=True, slots=True)
class PullPlan:
    """A pull before anything is fetched."""

    name: str
    draft_name: str | None
    """The draft that the user chose; None leaves it to the catalogue."""
    pair: Pair | None
    target: PullPart
    draft: PullPart | None
    projector: PullPart | None
    """With which the target sees pictures."""
    verdict: str
    notices: tuple[str, ...]
    suggestion: str | None
    """Name of a catalogue pair whose draft would fit; None if the pull has a draft or none fits."""

    @property
    def parts(self) -> tuple[PullPart, ...]:
        """Target, draft and projector, as far as there are any."""
        found = (self.target, self.draft, self.projector)
        return tuple(part for part in found if part is not None)

    @property
    def jobs(self) -> tuple[DownloadJob, ...]:
        """All files."""
        return tuple(job for part in self.parts for job in part.jobs)

    @property
    def n_bytes(self) -> int:
        """Bytes of all files."""
        return sum(part.n_bytes for part in self.parts)

    @property
    def missing(self) -> int:
        """Bytes to fetch, judged by file sizes."""
        return sum(missing_bytes(job) for job in self.jobs)

    @property
    def licence(self) -> str:
        """Licence by the catalogue, the repository or the file, in this order."""
        if self.pair is not None and self.pair.licence != NOT_STATED:
            return self.pair.licence
        repo = self.target.repo
        return (repo.licence if repo else None) or self.target.header.licence or NOT_STATED

    @property
    def gated(self) -> bool:
        """Whether a repository requires that terms are accepted."""
        return any(part.repo is not None and part.repo.gated for part in self.parts)


def missing_bytes(job: DownloadJob) -> int:
    """Bytes of a file that are still to be fetched."""
    pointer = hf_cache.find_file(job.repo, job.entry.path, job.commit)
    blob = hf_cache.repo_folder(job.repo) / "blobs" / job.entry.etag
    if any(
        p is not None and p.is_file() and p.stat().st_size == job.entry.size
        for p in (pointer, blob)
    ):
        return 0
    part = hf_cache.partial(job.repo, job.entry.etag)
    missing = byte_ranges.read(hf_cache.ranges_file(part), part, job.entry.size)
    return job.entry.size if missing is None else sum(end - start for start, end in missing)


def require_space(plan: PullPlan, *, force: bool) -> None:
    """Check memory, unless ``force``, and the disk, before anything is downloaded.

    Raises:
        OutOfMemoryError: the files are larger than the memory of this machine.
        LocalspecError: the disk has no room for the missing bytes; with the numbers.
    """
    if plan.verdict == TOO_BIG and not force:
        raise OutOfMemoryError(
            f"{plan.name} ({size(plan.n_bytes)}) is too big for the memory of this machine; "
            "`localspec models` shows what fits, `localspec pull --force` pulls it all the same"
        )
    folder, free = disk()
    if plan.missing > free:
        raise LocalspecError(
            f"{plan.name} needs {size(plan.missing)} more, and the disk of {folder} has "
            f"{size(free)} free; make room, or move the cache with HF_HOME"
        )


def disk() -> tuple[Path, int]:
    """The folder of the cache or its nearest existing parent, and the free bytes of its disk."""
    folder = hf_cache.cache_folder()
    while not folder.is_dir() and folder.parent != folder:
        folder = folder.parent
    return folder, shutil.disk_usage(folder).free
