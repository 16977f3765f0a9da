"""What this machine has, and what llama.cpp is therefore built for."""

import functools
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bootstrap_steps import Failure

OPTIONS_FILE = Path(__file__).resolve().with_name("llama_options.cmake")
VECTOR_FLAG = re.compile("sse|ssse|avx|fma|f16c|bmi|amx")
BACKENDS = ("cpu", "cuda", "metal", "vulkan")

# Core seconds of a build, to tell people how long it will take before ninja can.
CORE_SECONDS = {"cpu": 200, "metal": 220, "cuda": 2400, "vulkan": 900}


@dataclass(frozen=True)
class Machine:
    """What decides the backend, and what a native build is native to."""

    system: str
    arch: str
    cpu: str
    nvcc: str | None
    cuda_version: str
    gpus: str
    """One line per NVIDIA GPU, empty without one."""


def output_of(*command: str) -> str:
    """Standard output of a probe, or nothing when it is missing, slow or unhappy."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=15, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.strip()


def find_nvcc(environ: Mapping[str, str]) -> str | None:
    homes = [environ.get("CUDA_HOME"), environ.get("CUDA_PATH"), "/usr/local/cuda"]
    places = [environ.get("CUDACXX"), "nvcc", *(f"{home}/bin/nvcc" for home in homes if home)]
    return next((found for place in places if place and (found := shutil.which(place))), None)


def cpu_identity() -> str:
    """The processor's name and vector instructions: what -march=native goes by."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return output_of("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor()
    return cpu_identity_of(text)


def cpu_identity_of(cpuinfo: str) -> str:
    found: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = (part.strip() for part in line.partition(":"))
        if name == "flags":
            # Kernels add words of their own to this list; an update of one is no new processor.
            value = " ".join(sorted(filter(VECTOR_FLAG.match, value.split())))
        if name in {"model name", "flags", "Features", "CPU part", "isa"}:
            found.setdefault(name, value)
    return json.dumps(found, sort_keys=True)


@functools.cache
def this_machine() -> Machine:
    nvcc = find_nvcc(os.environ)
    return Machine(
        system=platform.system(),
        arch=platform.machine(),
        cpu=cpu_identity(),
        nvcc=nvcc,
        cuda_version=output_of(nvcc, "--version") if nvcc else "",
        gpus=output_of("nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"),
    )


def choose_backend(requested: str | None, machine: Machine) -> str:
    """The backend to build: what was asked for, else the best this machine can use."""
    if requested and requested != "auto":
        if requested not in BACKENDS:
            raise Failure(
                f"LOCALSPEC_BACKEND={requested} is not known; use one of {', '.join(BACKENDS)}, "
                "or unset it to build for what this machine has",
                status=2,
            )
        return requested
    if machine.system == "Darwin" and machine.arch == "arm64":
        return "metal"
    if machine.nvcc and machine.gpus:
        return "cuda"
    return "cpu"


def cmake_options(backend: str, machine: Machine) -> list[str]:
    options = [
        # The library for images and sound; localspec never loads it.
        "-DLLAVA_BUILD=OFF",
        f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={OPTIONS_FILE}",
    ]
    if backend == "cuda":
        options.append("-DGGML_CUDA=ON")
        if machine.nvcc:
            options.append(f"-DCMAKE_CUDA_COMPILER={machine.nvcc}")
        # Only this machine's GPUs: minutes instead of the better part of an hour. Without one here,
        # somebody builds for another machine.
        options.append(f"-DCMAKE_CUDA_ARCHITECTURES={'native' if machine.gpus else 'all-major'}")
    if backend == "vulkan":
        options.append("-DGGML_VULKAN=ON")
    if machine.system == "Darwin":
        options.append(f"-DLOCALSPEC_METAL={'ON' if backend == 'metal' else 'OFF'}")
    return options


def require_build_tools(backend: str, machine: Machine) -> None:
    """Say what is missing before the download instead of after minutes of CMake."""
    hint = {
        "Darwin": "run `xcode-select --install`",
        "Linux": "install one (Debian, Ubuntu: `apt install build-essential`; "
        "Fedora: `dnf install gcc-c++`)",
    }.get(machine.system, "install one")
    compiler = os.environ.get("CXX", "").split()[:1] or ["c++", "g++", "clang++"]
    # A Mac without its developer tools has a c++ that only asks for them.
    bare_mac = machine.system == "Darwin" and not output_of("xcode-select", "-p")
    if bare_mac or not any(shutil.which(name) for name in compiler):
        raise Failure(f"llama.cpp is built here and needs a C++ compiler: {hint}, then start again")
    if backend == "cuda" and machine.nvcc is None:
        raise Failure(
            "LOCALSPEC_BACKEND=cuda needs the CUDA toolkit, and nvcc was not found: install it or "
            "set CUDACXX to nvcc's path, then start again"
        )
    if backend == "metal" and machine.system != "Darwin":
        raise Failure("LOCALSPEC_BACKEND=metal works on a Mac only; unset it or choose another")
    if backend == "vulkan" and not shutil.which("glslc"):
        raise Failure(
            "LOCALSPEC_BACKEND=vulkan needs the Vulkan SDK, and glslc was not found: install it "
            "(Debian, Ubuntu: `apt install glslc libvulkan-dev`), then start again"
        )


def build_jobs(backend: str) -> int:
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    if backend != "cuda":
        return cores
    # One CUDA file can take two GiB to compile.
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(cores, memory // (2 << 30)))
