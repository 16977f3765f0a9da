"""What identifies the installed library of llama.cpp, and the machine that it computes on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from localspec.compiling import cxx
from localspec.compiling.own_build import processor
from localspec.core.errors import LocalspecError

_DRIVER = Path("/sys/module/nvidia/version")
_NODES = ("/dev/nvidiactl", "/dev/dxg")
"""What a process reaches NVIDIA's cards by, on WSL2 the second; a container may have neither."""
_GPUS = Path("/proc/driver/nvidia/gpus")
_PCI = Path("/sys/bus/pci/devices")
_DRM = Path("/sys/class/drm")
_VULKAN_VARIABLES = ("GGML_VK_VISIBLE_DEVICES", "VK_DRIVER_FILES", "VK_ICD_FILENAMES")
_EDITION = 1
"""Raised when the proof of the library itself changes."""


def identity() -> str:
    """Digest of the library's files, by their names, sizes and times, and the processor; for a
    build for CUDA or Vulkan also of the cards. Takes a millisecond.

    Raises:
        LocalspecError: llama-cpp-python is not installed.
    """
    files = []
    for path in sorted(filter(Path.exists, _library_folder().iterdir())):
        facts = path.stat()
        files.append([path.name, facts.st_size, facts.st_mtime_ns])
    names = " ".join(str(name) for name, *_ in files)
    cards = graphics() if "cuda" in names else []
    cards += _vulkan() if "vulkan" in names else []
    facts_of_all = json.dumps([_EDITION, files, processor(), *cards])
    return hashlib.sha256(facts_of_all.encode()).hexdigest()


def graphics() -> list[str]:
    """NVIDIA's driver, its cards, and which of them this process may use, as far as files tell."""
    try:
        driver = _DRIVER.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        driver = ""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    nodes = [node for node in _NODES if Path(node).exists()]
    nodes += sorted(map(str, Path("/dev").glob("nvidia[0-9]*")))
    # Not their UUIDs: the driver knows those only while a card is in use.
    cards = [_card(_PCI / place.name) for place in sorted(_GPUS.glob("*"))]
    return [driver, visible, *nodes, *cards]


def _vulkan() -> list[str]:
    """The cards with a driver, and which of them Vulkan is to use."""
    chosen = [os.environ.get(name, "") for name in _VULKAN_VARIABLES]
    return [*chosen, *(_card(node / "device") for node in sorted(_DRM.glob("renderD*")))]


def _card(folder: Path) -> str:
    """What a card is, by the system's folder of its PCI device."""
    facts = [folder.name]
    for name in ("vendor", "device", "subsystem_vendor", "subsystem_device"):
        with contextlib.suppress(OSError, ValueError):
            facts.append((folder / name).read_text(encoding="ascii").strip())
    return " ".join(facts)


def _library_folder() -> Path:
    folder = cxx.library_folder()
    if folder is None:
        raise LocalspecError("llama-cpp-python is not installed; `localspec doctor` says how")
    return folder


def digest() -> str:
    """SHA-256 of the contents of the library's files.

    Raises:
        LocalspecError: llama-cpp-python is not installed, or cannot be read.
    """
    found = hashlib.sha256()
    try:
        for path in sorted(_library_folder().iterdir()):
            if path.is_file():
                with path.open("rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
                found.update(f"{path.name} {content}\n".encode())
    except OSError as error:
        raise LocalspecError(f"llama.cpp cannot be read: {error.strerror or error}") from None
    return found.hexdigest()
