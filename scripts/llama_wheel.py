"""Builds llama-cpp-python for this machine once, and stores the wheel for later checkouts.

pip caches wheels by version alone and would install a CPU build where CUDA was requested. So the
build does not use pip, and the wheel is stored under a key of everything that it depends on.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bootstrap_steps import Failure, run_step, say
from llama_backend import (
    CUDA_FILES,
    Machine,
    build_jobs,
    cmake_options,
    require_build_tools,
    this_machine,
)
from llama_ladder import NOTES, Rung
from llama_pace import Pace
from llama_time import expected, in_words

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))  # the door to native code, of the standard library alone

from localspec.core.errors import LocalspecError  # noqa: E402
from localspec.core.files import native, paths, private  # noqa: E402

SETTINGS = ("CMAKE_ARGS", "CC", "CXX", "CFLAGS", "CXXFLAGS", "CUDAFLAGS", "LDFLAGS")
RARE_SETTINGS = ("CUDAHOSTCXX", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN")
"""Variables that compilers and CMake go by. The rare ones are a part of a key only where they are
set, so that keys from before they were known stay good."""


@dataclass(frozen=True)
class Source:
    """The one pinned source archive, from requirements/llama.lock."""

    version: str
    sha256: str


def read_source(lock: Path) -> Source:
    pin = re.search(
        r"^llama-cpp-python==(\S+) \\\n\s+--hash=sha256:([0-9a-f]{64})$",
        lock.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    if pin is None:
        raise Failure(f"{lock} does not pin one archive of llama-cpp-python; run scripts/lock")
    return Source(version=pin[1], sha256=pin[2])


def wheel_key(
    source: Source, backend: str, machine: Machine, environ: Mapping[str, str], options: str
) -> str:
    """Name of a build's folder in the cache; two builds that could differ never share it.

    The Python version is omitted: the wheel has no extension module and is tagged py3-none.
    """
    settings = [option for option in cmake_options(backend, machine) if "INCLUDE=" not in option]
    own = [path.read_text(encoding="utf-8") for path in CUDA_FILES] if backend == "cuda" else []
    facts = {
        "source": source.sha256,
        "options": [*settings, options],
        "environment": {name: environ.get(name, "") for name in SETTINGS}
        | {name: environ[name] for name in RARE_SETTINGS if environ.get(name)},
        "machine": [machine.system, machine.arch, machine.cpu, *platform.libc_ver()],
        "cuda": [machine.cuda_version, machine.gpus, *own] if backend == "cuda" else [],
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return f"{source.version}-{backend}-{digest[:16]}"


def cache_directory(environ: Mapping[str, str], system: str) -> Path:
    if home := environ.get("LOCALSPEC_HOME"):
        return paths.expand(home) / "cache" / "llama-cpp-python"
    base = environ.get("XDG_CACHE_HOME") or "~/.cache"
    if system == "Darwin":
        base = "~/Library/Caches"
    return paths.expand(base) / "localspec" / "llama-cpp-python"


def usual_cache(environ: Mapping[str, str], system: str) -> Path:
    """The cache without LOCALSPEC_HOME: a fitting wheel there need not be built again."""
    others = {name: value for name, value in environ.items() if name != "LOCALSPEC_HOME"}
    return cache_directory(others, system)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cached_wheel(folder: Path) -> Path | None:
    """The wheel in a cache folder, if its checksum is right and nobody else could have put it
    there: what it holds is native code.
    """
    for wheel in folder.glob("*.whl"):
        record = wheel.with_suffix(".sha256")
        if record.is_file() and record.read_text(encoding="ascii").strip() == sha256_of(wheel):
            try:
                for place in (folder, wheel, record):
                    native.require_closed(place)
            except LocalspecError as error:
                say(f"a build of llama.cpp in {folder} is not used: {error}")
                return None
            return wheel
    return None


def make_folder(folder: Path) -> Path:
    """Make a folder of the cache, with 0700.

    Raises:
        Failure: others may write to it.
        OSError: it cannot be made.
    """
    try:
        return private.make(folder)
    except LocalspecError as error:
        raise Failure(str(error)) from None


def keep_wheel(wheel: Path, folder: Path) -> Path:
    """Move a new wheel into the cache; the checksum comes last and makes it valid."""
    make_folder(folder)
    kept = folder / wheel.name
    record = kept.with_suffix(".sha256")
    record.unlink(missing_ok=True)
    shutil.move(wheel, kept)
    record.write_text(sha256_of(kept) + "\n", encoding="ascii")
    for file in (kept, record):
        file.chmod(0o600)
    return kept


def unpack(archive: Path, target: Path) -> None:
    """Unpack the archive's only folder as target, all or nothing."""
    if target.is_dir():
        return
    scratch = target.with_name("unpacking")
    shutil.rmtree(scratch, ignore_errors=True)
    # Python 3.11.0 to 3.11.3, Debian 12's among them, has no filters. The archive is as it was
    # locked by its digest either way.
    if hasattr(tarfile, "data_filter"):
        shutil.unpack_archive(archive, scratch, filter="data")
    else:
        shutil.unpack_archive(archive, scratch)
    (top,) = scratch.iterdir()
    top.rename(target)
    scratch.rmdir()


def adopt(folder: Path, other: Path) -> None:
    """Copy the build that another cache has under the same key, if this one has none."""
    wheel = cached_wheel(other)
    if other == folder or wheel is None or cached_wheel(folder) or (folder / NOTES).is_file():
        return
    make_folder(folder)
    notes = other / NOTES
    if notes.is_file():
        shutil.copyfile(notes, folder / NOTES)
    if (other / KEPT).is_dir() and not (folder / KEPT).exists():
        shutil.copytree(other / KEPT, folder / KEPT)
    copy = folder / f"{wheel.name}.copy"
    shutil.copyfile(wheel, copy)
    keep_wheel(copy.rename(folder / wheel.name), folder)


def build_wheel(
    source: Source,
    backend: str,
    machine: Machine,
    rung: Rung,
    work: Path,
    base_python: Path,
    log: Path,
) -> Path:
    """Build in ``work``; a later call continues an interrupted build there."""
    tools = work / "tools"
    pip: list[str | Path] = [tools / "bin" / "python", "-I", "-m", "pip"]
    # The Python that they were made with may be gone since an interrupted build.
    if not ((tools / "ready").is_file() and (tools / "bin" / "python").exists()):
        shutil.rmtree(tools, ignore_errors=True)
        run_step("preparing build tools", [base_python, "-m", "venv", tools], log)
        install = [*pip, "install", "--require-hashes", "--only-binary", ":all:"]
        lock = ROOT / "requirements" / "build.lock"
        run_step("downloading build tools", [*install, "-r", lock], log)
        (tools / "ready").touch()
    path = os.pathsep.join([str(tools / "bin"), os.environ["PATH"]])

    archive = work / f"llama_cpp_python-{source.version}.tar.gz"
    if not archive.is_file() or sha256_of(archive) != source.sha256:
        download = [*pip, "download", "--no-deps", "--no-binary", ":all:"]
        download += ["--no-build-isolation", "--require-hashes"]
        lock = ROOT / "requirements" / "llama.lock"
        run_step(
            "downloading llama.cpp (77 MB)",
            [*download, "-d", work, "-r", lock],
            log,
            env={**os.environ, "PATH": path},
        )
    unpack(archive, work / "source")

    jobs = build_jobs(backend)
    estimate = expected(backend, machine, work, rung.work)
    cores = "1 core" if jobs == 1 else f"{jobs} cores"
    say(
        f"building llama.cpp for {backend.upper()}, once: "
        f"{in_words(estimate)}, on {cores} (log: {log})"
    )
    options = [*cmake_options(backend, machine), *rung.options]
    settings = {"build-dir": str(work / "build"), "cmake.args": options}
    call = (
        "import json, sys; from scikit_build_core.build import build_wheel; "
        "build_wheel(sys.argv[1], json.loads(sys.argv[2]))"
    )
    run_step(
        f"building llama.cpp for {backend.upper()}",
        [tools / "bin" / "python", "-I", "-c", call, work / "wheel", json.dumps(settings)],
        log,
        pace=Pace(estimate, work / "build"),
        cwd=work / "source",
        env={"CMAKE_BUILD_PARALLEL_LEVEL": str(jobs), **os.environ, "PATH": path},
        advice=""
        if backend == "cpu"
        else f"the log says why; LOCALSPEC_BACKEND=cpu builds without {backend.upper()}",
    )
    (wheel,) = (work / "wheel").glob("*.whl")
    return wheel


KEPT = "source"
"""Folder of a wheel's cache with what plugins are compiled against, see localspec/compiling."""
_PLUGINS = (
    *("ggml/include/*.h", "ggml/src/*.h", "ggml/src/ggml-cpu/*.h", "ggml/src/ggml-rpc/*"),
    *("include/*.h", "tools/mtmd/*.h", "tools/mtmd/*.cpp", "tools/mtmd/debug/*.h"),
    *("tools/mtmd/models/*.h", "tools/mtmd/models/*.cpp"),
)


def keep_source(source: Path, folder: Path) -> None:
    """Keep the few files of llama.cpp that plugins are compiled against, all or nothing."""
    top, scratch = source / "vendor" / "llama.cpp", folder / f"{KEPT}.new"
    shutil.rmtree(scratch, ignore_errors=True)
    for pattern in _PLUGINS:
        for path in top.glob(pattern):
            copy = scratch / path.relative_to(top)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    if scratch.is_dir():
        shutil.rmtree(folder / KEPT, ignore_errors=True)
        scratch.rename(folder / KEPT)


def work_folder(folder: Path) -> Path:
    """Where the wheel for a folder of the cache is built."""
    return folder.with_name(f"{folder.name}.work")


def obtain_wheel(
    source: Source, backend: str, rung: Rung, folder: Path, base_python: Path, log: Path
) -> Path:
    """The wheel in ``folder``, or a new one. The caller holds the lock of that folder.

    The caller also removes the work folder once the build is proved: until then, another step of
    the ladder reuses the common parts there.
    """
    if wheel := cached_wheel(folder):
        return wheel
    machine = this_machine()
    require_build_tools(backend, machine)
    work = work_folder(folder)
    make_folder(folder)  # which is refused before minutes are spent
    make_folder(work)
    try:
        built = build_wheel(source, backend, machine, rung, work, base_python, log)
        make_folder(folder)
        keep_source(work / "source", folder)
        return keep_wheel(built, folder)
    except Failure:
        # An interruption keeps its half-done work for the next start; a failure may be due to it.
        shutil.rmtree(work, ignore_errors=True)
        raise


if __name__ == "__main__":
    sys.exit("this file is a part of scripts/localspec; start that")
