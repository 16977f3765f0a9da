"""The source of the RPC plugin: from a folder or archive, an earlier build, or the package index.

The files are known by their SHA-256. Nothing else is compiled: the plugin and the installed
llama.cpp share structures, which another version lays out differently.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from localspec.config import paths
from localspec.errors import WorkerError

VERSION = "0.3.36"
"""The pinned llama-cpp-python, see requirements/llama.lock."""
ARCHIVE_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
"""SHA-256 of its source archive, from the same lock."""
FILES = {
    "ggml/include/ggml-alloc.h": "94e4cd069b9313b2ceb35dacec901981e0bb478d8bb31035b7126be091998c23",
    "ggml/include/ggml-backend.h": (
        "46d84cb998105f871240864fd0f55446939a2fe86c5c281afa63a010fb1f65a2"
    ),
    "ggml/include/ggml-cpp.h": "bc15ba002c68685df23faae42df0d2b3d58032011f88b649021ab92485862c72",
    "ggml/include/ggml-rpc.h": "196d2a7434f0abdb01f13c5360e0b118b9f2d66c6452e3a7a844fbecc890205c",
    "ggml/include/ggml.h": "12ee71f99db7db9b353bc02b1fbb57c344ee17c01ac5fb7952b41a637a747ea9",
    "ggml/include/gguf.h": "e56714aab702e5ce62ee587a409643c08f7e93e8fbb77f48ef7cc85075f96fa4",
    "ggml/src/ggml-backend-impl.h": (
        "683e0583268e91e1f50b4ffc416b6523e0cec2dfdb3984c89792bda29e32566b"
    ),
    "ggml/src/ggml-impl.h": "43564db0238aebb7ed68501e346c194866b5dac218d1d37b26baff9f458c00d3",
    "ggml/src/ggml-rpc/ggml-rpc.cpp": (
        "812494f207b78e6af7454bd8042ce582850b1c91733db4144e6297ba940b66bd"
    ),
    "ggml/src/ggml-rpc/transport.cpp": (
        "8177d6106723a7c504ae12f03bdb8edd73ff56aee9347e9a77ac15669ad57f7e"
    ),
    "ggml/src/ggml-rpc/transport.h": (
        "fec7abf4e6cebec0d20e3350c01f2f47d495f90a79c6d829870e09d8a7ef2219"
    ),
}
"""SHA-256 of each file that the plugin is made of, by its path in llama.cpp."""
_INDEX = "https://pypi.org/simple"
_INDEX_VARIABLES = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
_TIMEOUT_S = 30.0
_LARGEST = 1 << 30
"""Bytes from which on an archive or an index page is refused."""


@dataclass(frozen=True, slots=True)
class Source:
    """The files of the plugin, checked."""

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


def find(given: Path | None = None, *, offline: bool = False) -> Source:
    """The source in the folder or archive ``given``, else what builds have left on this machine,
    else that of the package index.

    Raises:
        WorkerError: it is not there, not this version's, or cannot be downloaded.
    """
    if given is not None:
        return _given(given)
    for folder in _left_by_builds():
        if (found := _in_folder(folder)) is not None:
            return found
    if offline:
        raise WorkerError(
            f"the plugin for other machines is compiled from the source of llama-cpp-python "
            f"{VERSION}, which is not here; leave out --offline once, or give a folder with "
            "--source to `localspec worker`"
        )
    return _downloaded()


def _given(place: Path) -> Source:
    """The source in a folder or archive that the user named."""
    try:
        found = _in_folder(place) if place.is_dir() else _in_archive(place)
    except FileNotFoundError:
        raise WorkerError(f"there is no folder or archive {place}") from None
    except (OSError, tarfile.TarError) as error:
        raise WorkerError(f"cannot read the source in {place}: {error}") from None
    if found is None:
        raise WorkerError(
            f"{place} is not the llama.cpp of llama-cpp-python {VERSION}, which is the installed "
            "one; give its source folder or archive, or none to have it downloaded"
        )
    return found


def _in_folder(folder: Path) -> Source | None:
    """The source in a folder of llama.cpp or of llama-cpp-python; None if it is another version's
    or none.
    """
    for root in (folder, folder / "vendor" / "llama.cpp"):
        try:
            return _checked({name: (root / name).read_bytes() for name in FILES})
        except (OSError, _OtherVersionError):
            continue
    return None


def _in_archive(archive: Path) -> Source | None:
    wanted, files = {f"/vendor/llama.cpp/{name}": name for name in FILES}, {}
    with tarfile.open(archive) as bundle:
        for member in bundle:
            name = wanted.get("/" + member.name.partition("/")[2])
            content = bundle.extractfile(member) if name is not None and member.isfile() else None
            if name is not None and content is not None:
                files[name] = content.read()
    try:
        return _checked(files)
    except _OtherVersionError:
        return None


class _OtherVersionError(Exception):
    """Files that are missing, or of another version."""


def _checked(files: dict[str, bytes]) -> Source:
    for name, digest in FILES.items():
        if name not in files or hashlib.sha256(files[name]).hexdigest() != digest:
            raise _OtherVersionError(name)
    return Source(files)


def _left_by_builds() -> Iterable[Path]:
    """Folders where uv and scripts/localspec unpack the archive to build the wheel."""
    if platform.system() == "Darwin":
        cache = Path("~/Library/Caches").expanduser()
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    uv = Path(os.environ.get("UV_CACHE_DIR") or Path("~/.cache/uv").expanduser())
    yield from sorted(uv.glob(f"sdists-v*/*/llama-cpp-python/{VERSION}/*/src"))
    yield from sorted(uv.glob(f"sdists-v*/index/*/llama-cpp-python/{VERSION}/*/src"))
    for home in (paths.cache_dir(), cache / paths.APP):
        yield from sorted((home / "llama-cpp-python").glob(f"{VERSION}-*.work/source"))


def _downloaded() -> Source:
    """The source from the package index, whose archive is checked by its hash.

    Raises:
        WorkerError: it cannot be had.
    """
    import httpx2

    index = next((os.environ[n] for n in _INDEX_VARIABLES if os.environ.get(n)), _INDEX)
    page = f"{index.rstrip('/')}/llama-cpp-python/"
    folder = paths.make(paths.cache_dir())
    try:
        with (
            httpx2.Client(timeout=_TIMEOUT_S, follow_redirects=True) as client,
            tempfile.NamedTemporaryFile(dir=folder, suffix=".tar.gz") as file,
        ):
            answer = client.get(page)
            answer.raise_for_status()
            name = re.escape(f"llama_cpp_python-{VERSION}.tar.gz")
            link = re.search(rf'"([^"]*{name}[^"]*)"', answer.text)
            if link is None:
                raise WorkerError(f"{page} has no source of llama-cpp-python {VERSION}")
            digest, size = hashlib.sha256(), 0
            with client.stream("GET", answer.url.join(link[1])) as stream:
                stream.raise_for_status()
                for part in stream.iter_bytes():
                    size += len(part)
                    if size > _LARGEST:
                        raise WorkerError(f"{page} sends more than {_LARGEST >> 20} MiB")
                    digest.update(part)
                    file.write(part)
            file.flush()
            if digest.hexdigest() != ARCHIVE_SHA256:
                raise WorkerError(
                    f"the archive of llama-cpp-python {VERSION} from {page} is not the one that "
                    "localspec was built with: its SHA-256 differs"
                )
            found = _in_archive(Path(file.name))
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise WorkerError(
            f"cannot download the source of llama-cpp-python {VERSION} from {page}: {error}; give "
            "a folder with it with --source to `localspec worker`"
        ) from None
    except (OSError, tarfile.TarError) as error:
        raise WorkerError(f"cannot unpack the source of llama-cpp-python: {error}") from None
    if found is None:
        raise WorkerError("the archive of llama-cpp-python lacks files of the RPC plugin")
    return found


__all__ = ["ARCHIVE_SHA256", "FILES", "VERSION", "Source", "find"]
