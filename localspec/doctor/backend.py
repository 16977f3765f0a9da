"""Checks of llama.cpp: whether it loads, its backend, its devices, and idle GPUs."""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from localspec.compiling import own_build
from localspec.compiling.llama_source import VERSION
from localspec.core.errors import LocalspecError
from localspec.core.files import defects
from localspec.core.units import size_text
from localspec.doctor.findings import LIBRARY, Finding, in_checkout

_VECTORS = {
    "avx2": "AVX2",
    "avx_vnni": "AVX_VNNI",
    "avx512f": "AVX512",
    "avx512_vnni": "AVX512_VNNI",
    "amx_int8": "AMX_INT8",
    "asimddp": "DOTPROD",
    "i8mm": "MATMUL_INT8",
}
"""Instructions that products of weights are faster with: Linux's names and llama.cpp's."""
_PROBE_S = 5.0
_DRM = Path("/sys/class/drm")
_PCI_VENDORS = {"0x1002": "AMD", "0x8086": "Intel"}


def check() -> Iterator[Finding]:
    """The library, the processor, every device, and a GPU that lies idle."""
    try:
        from localspec.llama import devices, library

        backend, found, silent = devices.backend(), devices.devices(), devices.silent()
    except Exception as error:  # noqa: BLE001 - whatever keeps the native library from loading
        if lacks := defects.lacking(error):
            text, _, fix = lacks.partition("; ")
            yield Finding(LIBRARY, "broken", text, fix)
            return
        reason = " ".join(str(error).split()) or type(error).__name__
        loading = "" if isinstance(error, LocalspecError) else "llama-cpp-python cannot be loaded: "
        text = loading + reason
        yield Finding(LIBRARY, "broken", text, reinstall())
        return
    commit = library.commit()
    built = silent[0] if silent and backend == "cpu" else backend
    text = f"llama-cpp-python {library.version()}, built for {built}"
    if commit:
        text += f", llama.cpp {commit}"
    details = {"version": library.version(), "commit": commit or None, "backend": built}
    yield Finding(LIBRARY, "ok", text, details=details)
    cores = devices.physical_cores()
    yield processor(cores, library.system_info(), own_build.processor())
    full = devices.full_cards()
    for device in found:
        if device.name in full:
            text = f"{device.name} ({device.description}): other programs have all of its memory"
            yield Finding("device", "note", text, "close them; `nvidia-smi` lists them")
            continue
        text = (
            f"{device.name} ({device.description}): {size_text(device.free)} of "
            f"{size_text(device.total)} free"
        )
        sizes = {"kind": device.kind, "free": device.free, "total": device.total}
        yield Finding("device", "ok", text, details=sizes)
    if backend == "cpu":
        yield no_device(silent[0], library.errors()) if silent else unused_gpu()


def _features(system_info: str) -> str:
    """Names that are set to 1 for the processor in llama.cpp's line, which begins with devices."""
    words = system_info.rpartition("CPU :")[2].replace("|", " ").split()
    on = [words[i] for i in range(len(words) - 2) if words[i + 1 : i + 3] == ["=", "1"]]
    return " ".join(on) or "no CPU features reported"


def processor(cores: int, system_info: str, facts: Sequence[str]) -> Finding:
    """The processor, and what it has that this build does not use: one for any processor of a kind.

    ``facts`` are lines of the system about it.
    """
    text = f"{cores} physical core{'s' * (cores > 1)}, {_features(system_info)}"
    known = set(" ".join(facts).split())
    used = set(_features(system_info).split())
    idle = [name for flag, name in _VECTORS.items() if flag in known and name not in used]
    if in_checkout() or own_build.used():  # what it does not use has failed there
        idle = []
    if not idle:
        return Finding("cpu", "ok", text)
    text += f"; this build of llama.cpp leaves {' '.join(idle)} unused"
    return Finding("cpu", "note", text, rebuild("cpu"), {"unused": idle})


def no_device(backend: str, errors: Sequence[str]) -> Finding:
    """A build for a device that finds none, and why; ``errors`` are llama.cpp's latest lines."""
    details = {"unused": [], "built_for": backend}
    if backend == "cuda" and shutil.which("nvidia-smi") is None:
        text = "llama.cpp is built for CUDA and there is no NVIDIA driver: models run on the CPU"
        return Finding("gpu", "note", text, "install NVIDIA's driver", details)
    name = "CUDA" if backend == "cuda" else backend.capitalize()
    said = [line.partition(f"failed to initialize {name}: ")[2] for line in errors]
    why = "".join(f" ({reason})" for reason in [*filter(None, said)][-1:])
    text = f"llama.cpp is built for {name} and finds no device{why}: models run on the CPU"
    fix = "see whether its driver answers"
    if backend == "cuda":
        fix = "see whether `nvidia-smi` lists the card; a driver that was updated needs a restart"
    return Finding("gpu", "note", text, fix, details)


def unused_gpu() -> Finding:
    """A GPU that this build leaves idle, with the command that builds for it."""
    cards = _nvidia()
    if cards:
        text = f"{cards[0]} is here, but this build computes on the CPU"
        return Finding("gpu", "note", text, rebuild("cuda"), {"unused": cards})
    if sys.platform == "darwin" and platform.machine() == "arm64":
        text = "this Mac has Metal, but this build computes on the CPU"
        return Finding("gpu", "note", text, rebuild("metal"), {"unused": ["Metal"]})
    makers = _others()
    if makers:
        names = " and ".join(makers)
        text = f"a GPU of {names} is here, but this build computes on the CPU"
        return Finding("gpu", "note", text, rebuild("vulkan"), {"unused": makers})
    return Finding("gpu", "ok", "none found: models run on the CPU", details={"unused": []})


def _nvidia() -> list[str]:
    """Names of NVIDIA GPUs whose driver answers."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_PROBE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []  # a driver that does not answer could not be computed with either
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def _others() -> list[str]:
    """Makers of GPUs, other than NVIDIA, for which Linux has a driver that computes."""
    found = []
    for vendor in sorted(_DRM.glob("renderD*/device/vendor")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            found.append(_PCI_VENDORS.get(vendor.read_text(encoding="ascii").strip()))
    return list(dict.fromkeys(name for name in found if name))


def rebuild(backend: str) -> str:
    """The command that builds llama.cpp for that backend, where the present one works."""
    command = "scripts/localspec doctor" if in_checkout() else "localspec build-llama"
    return f"LOCALSPEC_BACKEND={backend} {command}"


def reinstall() -> str:
    """What gives a llama.cpp that works in place of one that does not: a command, unless the user
    named the one that does not.
    """
    if os.environ.get(own_build.VARIABLE) and not own_build.used():
        return f"correct {own_build.VARIABLE}, or unset it"
    if in_checkout():
        return rebuild("cpu")
    if own_build.used():
        return "localspec build-llama --remove"
    return (
        f"{shlex.quote(sys.executable)} -m pip install --no-cache-dir --force-reinstall --no-deps "
        f"--no-binary llama-cpp-python llama-cpp-python=={VERSION}"
    )
