"""The machine in a report: processor, devices, driver, build; no names of host or user."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import psutil

from device.rows import clean
from localspec import __version__
from localspec.llama import devices, library


def facts() -> list[tuple[str, str]]:
    """The machine, the device and the build, as (name, value) for the head of the report."""
    memory = psutil.virtual_memory().total
    found = [
        ("localspec", f"{__version__}, {_commit()}"),
        ("llama.cpp", f"llama-cpp-python {library.version()}, {library.commit() or 'unknown'}"),
        ("backend", devices.backend()),
        ("system", f"{_distribution()}, {platform.system()} {platform.machine()}"),
        ("Python", platform.python_version()),
        ("processor", f"{_processor()}, {devices.physical_cores()} cores, {memory / 1e9:.0f} GB"),
    ]
    found += [
        ("device", f"{d.name}: {d.description}, {d.total / 1e9:.1f} GB, {d.kind}")
        for d in devices.devices()
        if d.kind != "cpu"
    ]
    found += [("driver", driver) for driver in _drivers()]
    return [(name, clean(value)) for name, value in found]


def on_device() -> bool:
    """Whether this build computes on anything but the processor."""
    return devices.backend() != "cpu"


def software() -> bool:
    """Whether the device is software on the processor, so its speed is not judged."""
    return any(word in d.description.lower() for d in devices.devices() for word in _SOFTWARE)


_SOFTWARE = ("llvmpipe", "lavapipe", "swiftshader")


def _commit() -> str:
    folder = Path(__file__).resolve().parent
    said = _said("git", "-C", str(folder), "describe", "--always", "--dirty")
    return f"commit {said}" if said else "commit unknown"


def _distribution() -> str:
    if platform.system() == "Darwin":
        return f"macOS {platform.mac_ver()[0]}"
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return platform.system()


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _said("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor()
    name = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    return name[1] if name else platform.machine()


def _drivers() -> list[str]:
    """Versions of the drivers that answer."""
    found = []
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    if said := _said(*query):
        found.append(f"NVIDIA {said.splitlines()[0]}")
    found += re.findall(r"(?m)^\s*driverInfo\s*=\s*(.+)$", _said("vulkaninfo", "--summary"))
    return list(dict.fromkeys(found))


def _said(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
