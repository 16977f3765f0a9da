"""The Hugging Face cache on disk, read without huggingface_hub and without a connection.

::

    models--user--name/
        blobs/<etag>                    the bytes; a large file's etag is its sha256
                                        (huggingface_hub may put a link here, to a store
                                        that all repositories share under other hashes)
        snapshots/<commit>/<file>       a link to them
        refs/main                       the commit of main when the Hub was last asked

llama.cpp, huggingface_hub and localspec share it, so nothing is fetched or stored twice.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from localspec.core.files import checked, paths
from localspec.core.files.whole_file import replace_shared
from localspec.models.catalog.file_names import RepoFile, RepoModel, candidates
from localspec.models.catalog.links import HubRef, is_true

PARTIAL_SUFFIX = ".localspec.incomplete"
"""Suffix of partial downloads; huggingface_hub lists what ends in ``.incomplete`` as incomplete."""
_RANGES_SUFFIX = ".localspec.missing"
_SHORTEST_COMMIT = 7
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def cache_folder() -> Path:
    """Where the cache is, by the variables that huggingface_hub reads."""
    default_home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    home = os.environ.get("HF_HOME") or str(default_home)
    hub = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return paths.expand(os.path.expandvars(hub or str(Path(home) / "hub")))


def repo_folder(repo: str) -> Path:
    """The folder of one model repository."""
    return cache_folder() / ("models--" + repo.replace("/", "--"))


def repos() -> list[str]:
    """Names of the model repositories in the cache."""
    try:
        found = [path.name for path in cache_folder().iterdir() if path.is_dir()]
    except OSError:
        return []
    return sorted(
        name.removeprefix("models--").replace("--", "/", 1)
        for name in found
        if name.startswith("models--") and name.count("--") == 2
    )


def snapshots(repo: str) -> list[Path]:
    """Folders of the commits in the cache: main first, then the newest."""
    folder = repo_folder(repo)
    try:
        found = [path for path in (folder / "snapshots").iterdir() if path.is_dir()]
    except OSError:
        return []
    main = ref(repo)
    return sorted(found, key=lambda path: (path.name != main, -path.stat().st_mtime))


def ref(repo: str, name: str = "main") -> str | None:
    """The commit of a branch when the Hub was last asked; None if it never was."""
    try:
        return checked.content(repo_folder(repo) / "refs" / name, 256).decode().strip()
    except (OSError, ValueError):  # damaged: it is asked again
        return None


def commit_of(repo: str, revision: str) -> str | None:
    """The commit in the cache that a branch, tag or (perhaps shortened) commit names."""
    noted = ref(repo, revision)
    if noted is not None or len(revision) < _SHORTEST_COMMIT:
        return noted
    found = [path.name for path in snapshots(repo) if path.name.startswith(revision.lower())]
    return found[0] if len(found) == 1 else None


def find_file(
    repo: str, file: str, revision: str | None = None, sha256: str | None = None
) -> Path | None:
    """A file of a repository, at any commit if ``revision`` is None or ``sha256`` matches.

    With ``sha256``, a file that was renamed is found too.
    """
    pinned = repo_folder(repo) / "snapshots" / revision / file if revision else None
    if pinned is not None and paths.is_file(pinned):
        return pinned
    for snapshot in snapshots(repo):
        path = snapshot / file
        if paths.is_file(path) and (etag(path) == sha256 if sha256 else revision is None):
            return path
    return None if sha256 is None else _renamed(repo, sha256)


def _renamed(repo: str, sha256: str) -> Path | None:
    """A file with that content under any name."""
    if not paths.is_file(repo_folder(repo) / "blobs" / sha256):
        return None
    for snapshot in snapshots(repo):
        for file in cached_files(snapshot):
            if etag(snapshot / file) == sha256:
                return snapshot / file
    return None


def in_snapshot(repo: str, path: Path) -> tuple[Path, str]:
    """The snapshot folder of a file in the cache, and its path within."""
    top = repo_folder(repo) / "snapshots"
    commit, *steps = path.relative_to(top).parts
    return top / commit, "/".join(steps)


def etag(path: Path) -> str:
    """The name of the blob that a file of a snapshot points to.

    One link is followed: behind the blob there may be another, into the store that huggingface_hub
    shares between repositories, where names are other hashes.
    """
    try:
        return path.readlink().name
    except OSError:
        return path.name


def is_hash(tag: str) -> bool:
    """Whether the name of a blob is the hash of its content."""
    return _HASH.fullmatch(tag) is not None


def cached_files(snapshot: Path) -> dict[str, int]:
    """GGUF files of a snapshot whose content is there, with their sizes in bytes."""
    found = {}
    for path in sorted(snapshot.rglob("*.gguf")):
        if paths.is_file(path):
            found[path.relative_to(snapshot).as_posix()] = path.stat().st_size
    return found


def models(ref: HubRef) -> Iterator[tuple[Path, list[RepoModel]]]:
    """Snapshots that a reference may mean, in the order of `snapshots`, and the models in each."""
    commit = None if ref.revision is None else commit_of(ref.repo, ref.revision)
    for snapshot in snapshots(ref.repo):
        if ref.revision is not None and snapshot.name != commit:
            continue
        entries = [RepoFile(path, size) for path, size in cached_files(snapshot).items()]
        yield snapshot, candidates(entries, ref)


def partial(repo: str, tag: str) -> Path:
    """Path of the partial download of a blob.

    It is in the cache itself, so that completing it is a rename and not a copy of gigabytes.
    """
    return repo_folder(repo) / "blobs" / (tag + PARTIAL_SUFFIX)


def ranges_file(part: Path) -> Path:
    """Path of the note on which ranges a partial file lacks, where it lacks more than its end."""
    return part.with_name(part.name.removesuffix(PARTIAL_SUFFIX) + _RANGES_SUFFIX)


def lock(repo: str, tag: str) -> Path:
    """Path of the lock that huggingface_hub takes for the same blob."""
    folder = repo_folder(repo)
    return folder.parent / ".locks" / folder.name / f"{tag}.lock"


def place(repo: str, commit: str, file: str, tag: str, part: Path | None) -> Path:
    """Add a complete file to the cache; returns the path to open.

    ``part`` is the downloaded file; None if the blob exists and only the link is missing.

    Raises:
        OSError: the cache cannot be written to.
    """
    folder = repo_folder(repo)
    blob, pointer = folder / "blobs" / tag, folder / "snapshots" / commit / file
    pointer.parent.mkdir(parents=True, exist_ok=True)
    if part is not None:
        try:
            part.replace(blob)
        except FileNotFoundError:
            # Without working locks, as on some network file systems, another pull may be first.
            if not blob.is_file():
                raise
        ranges_file(part).unlink(missing_ok=True)
    if pointer.is_symlink() and pointer.resolve() == blob.resolve():
        return pointer
    fresh = pointer.with_name(f".{pointer.name}.{uuid.uuid4().hex[:8]}")
    if is_true("HF_HUB_DISABLE_SYMLINKS"):
        return _without_link(blob, pointer, fresh, keep=part is None)
    try:
        fresh.symlink_to(os.path.relpath(blob, pointer.parent))
    except OSError:  # a file system without links; huggingface_hub stores the file there, too
        return _without_link(blob, pointer, fresh, keep=False)
    fresh.replace(pointer)
    return pointer


def _without_link(blob: Path, pointer: Path, fresh: Path, *, keep: bool) -> Path:
    """Put the content itself into the snapshot; ``keep`` leaves the blob for other links to it."""
    if keep or blob.is_symlink():
        shutil.copyfile(blob, fresh)
        fresh.replace(pointer)
    else:
        blob.replace(pointer)
    return pointer


def write_ref(repo: str, name: str, commit: str) -> None:
    """Record the commit of a branch.

    Raises:
        OSError: the cache cannot be written to.
    """
    if ref(repo, name) == commit:
        return
    path = repo_folder(repo) / "refs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_shared(path, commit)


def partials(repo: str) -> list[Path]:
    """Partial downloads of a repository's files."""
    return sorted((repo_folder(repo) / "blobs").glob("*" + PARTIAL_SUFFIX))
