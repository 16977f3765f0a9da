"""Removes models from the cache, except for files that other models need."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import filelock
from huggingface_hub import (
    CachedFileInfo,
    CachedRepoInfo,
    CachedRevisionInfo,
    DeleteCacheStrategy,
    HFCacheInfo,
)

from localspec.core.errors import ModelNotFoundError, UsageError
from localspec.core.files.paths import DEMO_DIR
from localspec.models.catalog import file_names, hf_cache
from localspec.models.catalog.catalog import catalog
from localspec.models.catalog.links import HubRef
from localspec.models.catalog.pair import HubFile, Pair
from localspec.models.catalog.projectors import is_projector
from localspec.models.catalog.reference import LocalRef, PairRef, reference, require_on_hub
from localspec.models.gguf.shards import shard_names


@dataclass(frozen=True, slots=True)
class Removal:
    """Files of the cache to remove, and why others stay."""

    files: tuple[Path, ...]
    partials: tuple[Path, ...]
    """Their partial downloads."""
    freed: int
    """Bytes that become free; content that other files share stays."""
    staying: tuple[str, ...]
    """One line about each file that stays."""
    strategy: DeleteCacheStrategy | None

    def carry_out(self) -> Removal:
        """Remove the files; what was removed, and why any of the rest stays: a pull that has begun
        since this was planned goes on in its partial file.

        Raises:
            OSError: a file cannot be removed.
        """
        if self.strategy is not None:
            self.strategy.execute()
            for path in (*self.strategy.files, *self.strategy.blobs):
                if os.path.lexists(path):  # which huggingface_hub only logs
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        freed = self.strategy.expected_freed_size if self.strategy else 0
        removed, running = list[Path](), list[Path]()
        for path in self.partials:
            with _locked(path) as free:
                if not free:
                    running.append(path)
                elif path.is_file():  # it was not completed meanwhile
                    freed += path.stat().st_size
                    path.unlink()
                    hf_cache.ranges_file(path).unlink(missing_ok=True)
                    removed.append(path)
        return replace(self, partials=tuple(removed), freed=freed, staying=_why_staying(running))


def plan_removal(name: str) -> Removal:
    """The files in the cache that ``name`` denotes.

    Raises:
        UsageError: ``name`` is a file that localspec did not fetch, or leads out of the cache.
        ModelNotFoundError: no such name, or nothing of it is in the cache.
    """
    ref = reference(name)
    if isinstance(ref, PairRef):
        (paths, staying), partials = _of_pair(ref.pair), _partials_of_pair(ref.pair)
    else:
        if isinstance(ref, LocalRef) and ref.path.is_file():
            raise UsageError(f"{name} is a file of yours; remove it yourself")
        hub = require_on_hub(name, ref)
        (paths, whole), staying = _of_hub(hub), []
        # What is partial has no name: all of a repository, else where shards are lacking.
        own = (paths and not whole) or not (hub.tag or hub.revision)
        partials = hf_cache.partials(hub.repo) if own else []
    running = [part for part in partials if _is_pulled_now(part)]
    partials = [part for part in partials if part not in running]
    staying += _why_staying(running)
    if not paths and not partials:
        why = f" ({'; '.join(staying)})" if staying else ""
        if not running and not isinstance(ref, PairRef) and hf_cache.partials(hub.repo):
            why = f"; parts of downloads, which have no names, go with `localspec rm {hub.repo}`"
        raise ModelNotFoundError(f"nothing of {name!r} is here to remove{why}")
    paths += _projectors_beside(paths)
    _require_inside([*paths, *partials])
    strategy = _strategy(paths)
    return Removal(
        files=tuple(paths),
        partials=tuple(partials),
        freed=(strategy.expected_freed_size if strategy else 0)
        + sum(p.stat().st_size for p in partials),
        staying=tuple(staying),
        strategy=strategy,
    )


def _of_pair(pair: Pair) -> tuple[list[Path], list[str]]:
    """Files of a catalogue pair, and lines about those that another installed pair needs."""
    if not any(isinstance(file, HubFile) for file in pair.files):
        if Path(pair.target.where).is_relative_to(DEMO_DIR):
            raise UsageError(f"{pair.name!r} is a part of localspec and is not removed")
        raise UsageError(
            f"the files of {pair.name!r} were not pulled: {pair.target.where}; remove them yourself"
        )
    others = [p for p in catalog().values() if p.name != pair.name]
    paths: list[Path] = []
    staying: list[str] = []
    for file in pair.files:
        if not isinstance(file, HubFile) or not (parts := file.parts()):
            continue
        users = [p.name for p in others if file in p.files and p.target.found() is not None]
        if users:
            staying.append(f"{file.file} stays: {', '.join(users)} needs it")
        else:
            paths += parts
    return paths, staying


def _projectors_beside(models: list[Path]) -> list[Path]:
    """The projectors in the folders of models, where no other model stays there."""
    found = []
    for folder in dict.fromkeys(path.parent for path in models):
        files = set(folder.glob("*.gguf")) - set(models)
        seen = {file for file in files if is_projector(file)}
        if files == seen:
            found += sorted(seen)
    return found


def _partials_of_pair(pair: Pair) -> list[Path]:
    """By their hash where it is known; else all of a repository that lacks the file."""
    found = dict[Path, None]()
    for file in pair.files:
        if not isinstance(file, HubFile):
            continue
        if file.sha256 and len(shard_names(file.file)) == 1:
            path = hf_cache.partial(file.repo, file.sha256)
            found |= {path: None} if path.is_file() else {}
        elif file.found() is None:
            found |= dict.fromkeys(hf_cache.partials(file.repo))
    return [*found]


def _repo_of(part: Path) -> str:
    """The repository of a partial file."""
    return part.parent.parent.name.removeprefix("models--").replace("--", "/", 1)


def _why_staying(running: list[Path]) -> tuple[str, ...]:
    """A line about each repository with partial files that are fetched just now."""
    return tuple(
        f"a download of {repo} runs: its part stays; to remove that, stop it first"
        for repo in dict.fromkeys(map(_repo_of, running))
    )


def _lock_of(part: Path) -> Path:
    return hf_cache.lock(_repo_of(part), part.name.removesuffix(hf_cache.PARTIAL_SUFFIX))


def _is_pulled_now(part: Path) -> bool:
    """Whether a process, this one or another, fetches into a partial file: it holds the lock."""
    if not _lock_of(part).is_file():
        return False
    with _locked(part) as free:
        return not free


@contextlib.contextmanager
def _locked(part: Path) -> Iterator[bool]:
    """Hold the lock of a partial file, as a pull does; False where one holds it."""
    place, free = _lock_of(part), True
    with contextlib.ExitStack() as held:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(place, timeout=0, mode=0o664, fallback_to_soft=False)
            held.enter_context(lock)
        except filelock.Timeout:
            free = False
        except OSError:  # a file system without locks, or another user's
            pass
        yield free


def _of_hub(ref: HubRef) -> tuple[list[Path], bool]:
    """The shards of a model of the Hub, at every commit in the cache, and whether all are there at
    one of them. Else what is partial in the repository, which has no names, is taken for its own.
    """
    found, whole = list[Path](), False
    for snapshot, candidates in hf_cache.models(ref):
        try:
            meant = file_names.choose(ref, candidates, whole=False)
        except ModelNotFoundError:
            continue
        found += [snapshot / entry.path for entry in meant.entries]
        whole |= meant.whole
    return found, whole


def _require_inside(paths: list[Path]) -> None:
    """Refuse what lies behind a folder of the cache that is a link out of it."""
    cache = hf_cache.cache_folder().resolve()
    for path in paths:
        if not _located(path).is_relative_to(cache):
            raise UsageError(f"{path} leads out of the cache; remove it yourself")


def _located(path: Path) -> Path:
    """A path without links in its folder; the last step may be one."""
    return path.parent.resolve() / path.name


def _strategy(paths: list[Path]) -> DeleteCacheStrategy | None:
    """The deletion by huggingface_hub, which keeps content that other files share.

    Its own scan leaves out whole repositories in which anything is damaged: a link is broken, or
    the commit of a branch is not here.
    """
    if not paths:
        return None
    cache = hf_cache.cache_folder().resolve()
    wanted = {_located(path) for path in paths}
    folders = {cache / path.relative_to(cache).parts[0] for path in wanted}
    _require_inside([(folder / "blobs").resolve() for folder in folders])
    repos = frozenset(_repo(folder) for folder in folders)
    files = [f for repo in repos for revision in repo.revisions for f in revision.files]
    found = HFCacheInfo(
        size_on_disk=0, repos=repos, incomplete_files=frozenset(), warnings=[], cache_dir=cache
    )
    return found.delete_files(*(file for file in files if file.file_path in wanted))


def _repo(folder: Path) -> CachedRepoInfo:
    """What huggingface_hub wants to know of a repository, with all files as of one commit."""
    files = frozenset(_files(folder))
    revision = CachedRevisionInfo("", folder, 0, files, frozenset(), 0.0)
    return CachedRepoInfo(folder.name, "model", folder, 0, 0, frozenset({revision}), 0.0, 0.0)


def _files(folder: Path) -> Iterator[CachedFileInfo]:
    """The files of all snapshots of a repository, with the blobs that they are links to.

    A link to anything but a blob of the repository is removed alone: what is behind it stays.
    """
    blobs = (folder / "blobs").resolve()
    for path in map(_located, (folder / "snapshots").glob("*/**/*")):
        try:
            blob = _located(path.parent / path.readlink()) if path.is_symlink() else path
            if blob.parent != blobs:
                blob = path
            info = path.stat() if blob != path else path.lstat()
        except (OSError, RuntimeError):  # a broken link; one that leads to itself
            continue
        if not stat.S_ISDIR(info.st_mode):
            times = info.st_atime, info.st_mtime
            yield CachedFileInfo(path.name, path, blob, info.st_size, *times)
