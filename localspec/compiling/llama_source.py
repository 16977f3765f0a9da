"""The source of the installed llama.cpp: from a folder or archive, an earlier build, or the index.

The files are known by their SHA-256. Nothing else is compiled: what is compiled here and the
installed llama.cpp share structures, which another version lays out differently.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from localspec.core.errors import LocalspecError
from localspec.core.files import paths
from localspec.core.files.private import without_secrets, without_user

VERSION = "0.3.36"
"""The pinned llama-cpp-python, see requirements/llama.lock."""
ARCHIVE_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
"""SHA-256 of its source archive, from the same lock."""
VARIABLE = "LOCALSPEC_LLAMA_SOURCE"
"""Variable with a folder or archive of its source."""
KEPT = "source"
"""Folder beside a wheel that scripts/localspec stored, with the files that are compiled against."""
_INDEX = "https://pypi.org/simple"
_INDEX_VARIABLES = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
_TIMEOUT_S = 30.0
_LARGEST = 1 << 30
"""Bytes from which on an archive or an index page is refused."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The files that something is compiled from."""

    what: str
    """What is compiled, for messages."""
    files: Mapping[str, str]
    """SHA-256 of each file, by its path in llama.cpp's repository."""
    way_out: str
    """What to do where the source cannot be had, for messages."""


@dataclass(frozen=True, slots=True)
class Source:
    """The files, checked."""

    files: dict[str, bytes]
    """Contents by path in llama.cpp's repository."""

    def write(self, folder: Path) -> None:
        """Write them below a folder.

        Raises:
            OSError: they cannot be written.
        """
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def listed(path: Path) -> dict[str, str]:
    """SHA-256 of files by their paths in llama.cpp, from a list as ``sha256sum`` writes it."""
    lines = path.read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def find(wanted: Wanted, given: Path | None = None, *, offline: bool = False) -> Source:
    """The source in the folder or archive ``given``, else what builds have left on this machine,
    else that of the package index.

    Raises:
        LocalspecError: it is not there, not this version's, or cannot be downloaded.
    """
    if given is not None:
        return _given(wanted, given)
    for folder in left_by_builds():
        if (found := _in_folder(wanted, folder)) is not None:
            return found
    if offline:
        raise LocalspecError(
            f"{wanted.what} is compiled from the source of llama-cpp-python {VERSION}, which is "
            f"not here; leave out --offline once, or {wanted.way_out}"
        )
    return _downloaded(wanted)


def _given(wanted: Wanted, place: Path) -> Source:
    """The source in a folder or archive that the user named."""
    try:
        found = _in_folder(wanted, place) if place.is_dir() else _in_archive(wanted, place)
    except FileNotFoundError:
        raise LocalspecError(f"there is no folder or archive {place}") from None
    except (OSError, tarfile.TarError) as error:
        raise LocalspecError(f"cannot read the source in {place}: {error}") from None
    if found is None:
        raise LocalspecError(
            f"{place} is not the llama.cpp of llama-cpp-python {VERSION}, which is the installed "
            "one; give its source folder or archive, or none to have it downloaded"
        )
    return found


def _in_folder(wanted: Wanted, folder: Path) -> Source | None:
    """The source in a folder of llama.cpp or of llama-cpp-python; None if it is another version's
    or none.
    """
    for root in (folder, folder / "vendor" / "llama.cpp"):
        try:
            return _checked(wanted, {name: (root / name).read_bytes() for name in wanted.files})
        except (OSError, _OtherVersionError):
            continue
    return None


def _in_archive(wanted: Wanted, archive: Path) -> Source | None:
    members, files = {f"/vendor/llama.cpp/{name}": name for name in wanted.files}, {}
    with tarfile.open(archive) as bundle:
        for member in bundle:
            name = members.get("/" + member.name.partition("/")[2])
            content = bundle.extractfile(member) if name is not None and member.isfile() else None
            if name is not None and content is not None:
                files[name] = content.read()
    try:
        return _checked(wanted, files)
    except _OtherVersionError:
        return None


class _OtherVersionError(Exception):
    """Files that are missing, or of another version."""


def _checked(wanted: Wanted, files: dict[str, bytes]) -> Source:
    for name, digest in wanted.files.items():
        if name not in files or hashlib.sha256(files[name]).hexdigest() != digest:
            raise _OtherVersionError(name)
    return Source(files)


def left_by_builds() -> Iterable[Path]:
    """Folders where uv and scripts/localspec unpack the archive to build the wheel, and where the
    latter keeps some files of it.
    """
    if platform.system() == "Darwin":
        cache = paths.expand("~/Library/Caches")
    else:
        cache = paths.expand(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    uv = Path(os.environ.get("UV_CACHE_DIR") or paths.expand("~/.cache/uv"))
    yield from sorted(uv.glob(f"sdists-v*/*/llama-cpp-python/{VERSION}/*/src"))
    yield from sorted(uv.glob(f"sdists-v*/index/*/llama-cpp-python/{VERSION}/*/src"))
    for home in (paths.cache_dir(), cache / paths.APP):
        wheels = home / "llama-cpp-python"
        yield from sorted(wheels.glob(f"{VERSION}-*/{KEPT}"))
        yield from sorted(wheels.glob(f"{VERSION}-*.work/source"))


def _downloaded(wanted: Wanted) -> Source:
    """The source from the package index, whose archive is checked by its hash.

    Raises:
        LocalspecError: it cannot be had.
    """
    import httpx2

    from localspec.core.proxies import ByEnvironment

    index = next((os.environ[n] for n in _INDEX_VARIABLES if os.environ.get(n)), _INDEX)
    address = f"{index.rstrip('/')}/llama-cpp-python/"
    page = without_user(address)
    folder = paths.make(paths.cache_dir())
    try:
        with (
            httpx2.Client(
                transport=ByEnvironment(),
                trust_env=False,
                timeout=_TIMEOUT_S,
                follow_redirects=True,
            ) as client,
            tempfile.NamedTemporaryFile(dir=folder, suffix=".tar.gz") as file,
        ):
            answer = client.get(address)
            answer.raise_for_status()
            name = re.escape(f"llama_cpp_python-{VERSION}.tar.gz")
            link = re.search(rf'"([^"]*{name}[^"]*)"', answer.text)
            if link is None:
                raise LocalspecError(f"{page} has no source of llama-cpp-python {VERSION}")
            digest, size = hashlib.sha256(), 0
            with client.stream("GET", answer.url.join(link[1])) as stream:
                stream.raise_for_status()
                for part in stream.iter_bytes():
                    size += len(part)
                    if size > _LARGEST:
                        raise LocalspecError(f"{page} sends more than {_LARGEST >> 20} MiB")
                    digest.update(part)
                    file.write(part)
            file.flush()
            if digest.hexdigest() != ARCHIVE_SHA256:
                raise LocalspecError(
                    f"the archive of llama-cpp-python {VERSION} from {page} is not the one that "
                    "localspec was built with: its SHA-256 differs"
                )
            found = _in_archive(wanted, Path(file.name))
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise LocalspecError(
            f"cannot download the source of llama-cpp-python {VERSION} from {page}: "
            f"{without_secrets(str(error))}; "
            f"{wanted.way_out}"
        ) from None
    except (OSError, tarfile.TarError) as error:
        raise LocalspecError(f"cannot unpack the source of llama-cpp-python: {error}") from None
    if found is None:
        raise LocalspecError(f"the archive of llama-cpp-python lacks files of {wanted.what}")
    return found
