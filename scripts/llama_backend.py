"""Detects what llama.cpp can be built for on this machine, and chooses a backend."""

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
CUDA_FILES = (
    OPTIONS_FILE.with_name("llama_cuda.cmake"),
    OPTIONS_FILE.with_name("llama_cuda_driver.c"),
)
"""What a CUDA build on Linux has beside the options."""
ONE_COPY = (
    "-DCMAKE_INSTALL_BINDIR=llama_cpp/lib",
    "-DCMAKE_INSTALL_LIBDIR=llama_cpp/lib",
    "-DCMAKE_INSTALL_RPATH=$ORIGIN",
    "-DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON",
)
"""Options of a build on Linux. A wheel has no links: every name of a library would be a copy, and
two of them are loaded as two libraries. llama-cpp-python's own CMake installs all in two places."""
VECTOR_FLAG = re.compile("sse|ssse|avx|fma|f16c|bmi|amx")
BACKENDS = ("cpu", "cuda", "metal", "vulkan")

VULKAN_HEADERS = 272
"""VK_HEADER_VERSION, the last number of 1.3.272: the first to declare `VkLayerSettingEXT`, which
llama.cpp uses unconditionally. The number keeps counting in 1.4."""
SPIRV_HINT = (
    "Debian, Ubuntu: `apt install spirv-headers`; Fedora: `dnf install spirv-headers-devel`"
)
_VULKAN_PROBE = """\
#if __has_include(<vulkan/vulkan.hpp>) && __has_include(<vulkan/vulkan_core.h>)
#include <vulkan/vulkan_core.h>
localspec_vulkan VK_HEADER_VERSION
#endif
#if __has_include(<spirv/unified1/spirv.hpp>)
localspec_spirv 1
#endif
"""
_CUBLAS_PROBE = """\
localspec_probe
#if __has_include(<cublas_v2.h>)
localspec_cublas
#endif
"""
_PCI_VENDORS = {"0x1002": "AMD", "0x8086": "Intel"}


@dataclass(frozen=True)
class Machine:
    """The facts about this machine that a build depends on."""

    system: str
    arch: str
    cpu: str
    nvcc: str | None
    cuda_version: str
    gpus: str
    """One line per NVIDIA GPU, empty without one: name, compute capability."""
    other_gpus: tuple[str, ...] = ()
    """Makers of other GPUs with a driver: AMD, Intel."""


def output_of(*command: str, text: str = "") -> str:
    """Standard output of a probe that reads ``text``; nothing when it is missing, slow or fails."""
    try:
        result = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=15, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.strip()


def find_nvcc(environ: Mapping[str, str], gpus: str = "", root: Path = Path("/")) -> str | None:
    """The nvcc to compile with: the one that CUDACXX names, else the newest that knows the GPUs.

    A distribution's old nvcc is often first on PATH while the one that suits the GPU lies in
    /usr/local. Where none knows the GPUs, the newest is returned; `require_build_tools` says so.
    """
    if found := shutil.which(environ.get("CUDACXX") or ""):
        return found
    homes = [environ.get("CUDA_HOME"), environ.get("CUDA_PATH"), str(root / "usr/local/cuda")]
    homes += [str(root / "opt/cuda"), *map(str, sorted((root / "usr/local").glob("cuda-*")))]
    places = ["nvcc", *(f"{home}/bin/nvcc" for home in homes if home)]
    known = dict.fromkeys(found for place in places if (found := shutil.which(place)))
    if len(known) < 2:
        return next(iter(known), None)
    # max() keeps the first of equals, which is the one on PATH.
    return max(known, key=lambda nvcc: (knows_gpus(nvcc, gpus), cuda_release(nvcc)))


def cuda_release(nvcc: str) -> tuple[int, int]:
    """(12, 8) for a toolkit of release 12.8; (0, 0) where it prints no release."""
    found = re.search(r"release (\d+)\.(\d+)", output_of(nvcc, "--version"))
    return (int(found[1]), int(found[2])) if found else (0, 0)


def unknown_gpus(nvcc: str, gpus: str) -> list[str]:
    """Lines of ``gpus`` whose compute capability this nvcc does not compile for.

    Empty also where it cannot list what it knows: then the compiler decides.
    """
    listed = set(re.findall(r"compute_(\d+)", output_of(nvcc, "--list-gpu-arch")))
    if not listed:
        return []
    found = []
    for line in gpus.splitlines():
        capability = re.search(r"(\d+)\.(\d+)\s*$", line)
        if capability and f"{capability[1]}{capability[2]}" not in listed:
            found.append(line.strip())
    return found


def lacks_cublas(nvcc: str) -> bool:
    """Whether this nvcc finds no cuBLAS, which llama.cpp is linked to. False where it cannot say:
    then CMake decides.
    """
    said = output_of(nvcc, "-E", "-x", "cu", "-", text=_CUBLAS_PROBE)
    return "localspec_probe" in said and "localspec_cublas" not in said


def _how_to_get_cublas(nvcc: str) -> str:
    release = "{}-{}".format(*cuda_release(nvcc))
    return (
        f"Debian, Ubuntu with NVIDIA's packages: `apt install libcublas-dev-{release}`; Fedora: "
        f"`dnf install libcublas-devel-{release}`"
    )


def knows_gpus(nvcc: str, gpus: str) -> bool:
    return not unknown_gpus(nvcc, gpus)


def other_gpus(drm: Path = Path("/sys/class/drm")) -> tuple[str, ...]:
    """Makers of GPUs, other than NVIDIA, whose kernel driver can compute."""
    found = []
    for vendor in sorted(drm.glob("renderD*/device/vendor")):
        try:
            found.append(_PCI_VENDORS.get(vendor.read_text(encoding="ascii").strip()))
        except (OSError, UnicodeDecodeError):
            continue
    return tuple(dict.fromkeys(name for name in found if name))


def cpu_identity() -> str:
    """The processor's name and vector instructions, on which -march=native depends."""
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
    gpus = output_of("nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader")
    nvcc = find_nvcc(os.environ, gpus)
    return Machine(
        system=platform.system(),
        arch=platform.machine(),
        cpu=cpu_identity(),
        nvcc=nvcc,
        cuda_version=output_of(nvcc, "--version") if nvcc else "",
        gpus=gpus,
        other_gpus=other_gpus(),
    )


def choose_backend(requested: str | None, machine: Machine) -> str:
    """The backend to build: the requested one, else the best for this machine."""
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
    if machine.nvcc and machine.gpus and not _why_no_cuda(machine):
        return "cuda"
    return "cpu"


def unused_gpu(backend: str, machine: Machine) -> str | None:
    """A notice about a GPU that a CPU build leaves idle, with the quickest way to use it; None if
    there is none.
    """
    if backend != "cpu" or not (machine.gpus or machine.other_gpus):
        return None
    way = _way_to_vulkan()
    if not machine.gpus:
        names = " and ".join(machine.other_gpus)
        return f"there is a GPU of {names}, and llama.cpp is built for the CPU; {way}"
    why = _why_no_cuda(machine)
    if not why:
        return f"there is an NVIDIA GPU, and llama.cpp is built for the CPU; {way}"
    missing = "a CUDA toolkit"
    if machine.nvcc and "cuBLAS" in why:
        missing = f"cuBLAS ({_how_to_get_cublas(machine.nvcc)})"
    return (
        f"there is an NVIDIA GPU but {why}, so llama.cpp is built for the CPU; {way}; {missing}, "
        "with LOCALSPEC_BACKEND=cuda, is a larger download and a longer build"
    )


def _why_no_cuda(machine: Machine) -> str:
    """What a CUDA build for this GPU lacks; "" if nothing."""
    if machine.nvcc is None:
        return "no nvcc"
    if not knows_gpus(machine.nvcc, machine.gpus):
        return "no nvcc that compiles for it"
    return "nvcc comes without cuBLAS" if lacks_cublas(machine.nvcc) else ""


def _way_to_vulkan() -> str:
    run = "`LOCALSPEC_BACKEND=vulkan scripts/localspec doctor`"
    try:
        require_vulkan(os.environ)
    except Failure:
        if 0 < vulkan_headers(os.environ).vulkan < VULKAN_HEADERS:  # the system's are too old
            return (
                "the quickest way to the GPU: the Vulkan SDK of vulkan.lunarg.com, with VULKAN_SDK "
                f"set to it, then {run}"
            )
        return (
            "the quickest way to the GPU: the Vulkan SDK (Debian, Ubuntu: `apt install glslc "
            f"libvulkan-dev spirv-headers`), then {run}"
        )
    return f"the quickest way to the GPU, with what is installed: {run}"


def cmake_options(backend: str, machine: Machine) -> list[str]:
    options = [
        # The library for images and sound; localspec never loads it.
        "-DLLAVA_BUILD=OFF",
        f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={OPTIONS_FILE}",
    ]
    if machine.system == "Linux":
        options += ONE_COPY
    if backend == "cuda":
        options.append("-DGGML_CUDA=ON")
        if machine.nvcc:
            options.append(f"-DCMAKE_CUDA_COMPILER={machine.nvcc}")
        # Only this machine's GPUs: minutes instead of the better part of an hour. Without one here,
        # somebody builds for another machine.
        options.append(f"-DCMAKE_CUDA_ARCHITECTURES={'native' if machine.gpus else 'all-major'}")
        if machine.system == "Linux":
            options.append(f"-DCMAKE_PROJECT_ggml_INCLUDE={CUDA_FILES[0]}")
    if backend == "vulkan":
        options.append("-DGGML_VULKAN=ON")
    if machine.system == "Darwin":
        options.append(f"-DLOCALSPEC_METAL={'ON' if backend == 'metal' else 'OFF'}")
    return options


def require_build_tools(backend: str, machine: Machine) -> None:
    """Check the build tools before the download, instead of after minutes of CMake."""
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
    if backend == "cuda":
        require_cuda(machine)
    if backend == "metal" and machine.system != "Darwin":
        raise Failure("LOCALSPEC_BACKEND=metal works on a Mac only; unset it or choose another")
    if backend == "vulkan":
        require_vulkan(os.environ)


def require_cuda(machine: Machine) -> None:
    """Raises Failure where there is no nvcc, not the one that was named, or none that knows the
    GPUs here.
    """
    named = os.environ.get("CUDACXX")
    if named and not shutil.which(named):
        raise Failure(
            f"CUDACXX names {named}, which is no program: correct or unset it (flags belong into "
            "NVCC_PREPEND_FLAGS), then start again"
        )
    if machine.nvcc is None:
        raise Failure(
            "LOCALSPEC_BACKEND=cuda needs the CUDA toolkit, and nvcc was not found: install it or "
            "set CUDACXX to nvcc's path, then start again"
        )
    if lacks_cublas(machine.nvcc):
        raise Failure(
            f"llama.cpp needs cuBLAS, and nvcc ({machine.nvcc}) finds no cublas_v2.h: install it "
            f"({_how_to_get_cublas(machine.nvcc)}), or set LOCALSPEC_BACKEND to vulkan or cpu, "
            "then start again"
        )
    if unknown := unknown_gpus(machine.nvcc, machine.gpus):
        release = "{}.{}".format(*cuda_release(machine.nvcc))
        raise Failure(
            f"nvcc {release} ({machine.nvcc}) does not compile for {unknown[0]}: install a CUDA "
            "toolkit that does and set CUDACXX to its nvcc, or set LOCALSPEC_BACKEND to vulkan or "
            "cpu, then start again"
        )


def require_vulkan(environ: Mapping[str, str]) -> None:
    """Raises Failure where the shader compiler or headers are missing or too old.

    The compiler's preprocessor finds the headers. If CMake was given their place, the check is left
    to CMake.
    """
    sdk = "install the Vulkan SDK (vulkan.lunarg.com), set VULKAN_SDK to it"
    if not shutil.which("glslc"):
        raise Failure(
            "LOCALSPEC_BACKEND=vulkan needs the Vulkan SDK, and glslc was not found: install it "
            "(Debian, Ubuntu: `apt install glslc libvulkan-dev spirv-headers`), then start again"
        )
    found = vulkan_headers(environ)
    told = {"CMAKE_PREFIX_PATH", "SPIRV-Headers_DIR", "Vulkan_INCLUDE_DIR"}
    if told & {*environ} or any(name in environ.get("CMAKE_ARGS", "") for name in told):
        return
    if not found.vulkan:
        raise Failure(
            "LOCALSPEC_BACKEND=vulkan needs the Vulkan headers, 1.3."
            f"{VULKAN_HEADERS} or newer, and there are none: install them (Debian, Ubuntu: `apt "
            f"install libvulkan-dev`) or {sdk}, then start again"
        )
    if found.vulkan < VULKAN_HEADERS:
        raise Failure(
            f"LOCALSPEC_BACKEND=vulkan needs Vulkan headers 1.3.{VULKAN_HEADERS} or newer, and "
            f"those here are 1.3.{found.vulkan}: {sdk} and start again, or unset LOCALSPEC_BACKEND"
        )
    if not found.spirv:
        raise Failure(
            f"LOCALSPEC_BACKEND=vulkan needs the SPIR-V headers, and there are none: install them "
            f"({SPIRV_HINT}), then start again"
        )


@dataclass(frozen=True)
class Headers:
    """Versions of the headers that a compiler includes."""

    vulkan: int
    """VK_HEADER_VERSION, 0 without `vulkan.hpp`."""
    spirv: bool


def vulkan_headers(environ: Mapping[str, str]) -> Headers:
    """The Vulkan and SPIR-V headers that the C++ compiler finds."""
    names = environ.get("CXX", "").split() or ["c++"]
    compiler = next((n for n in (names[0], "g++", "clang++") if shutil.which(n)), names[0])
    sdk = [f"-I{environ['VULKAN_SDK']}/include"] if environ.get("VULKAN_SDK") else []
    said = output_of(compiler, *names[1:], *sdk, "-E", "-P", "-x", "c++", "-", text=_VULKAN_PROBE)
    version = re.search(r"\blocalspec_vulkan\s+(\d+)", said)
    spirv = "localspec_spirv" in said
    return Headers(int(version[1]) if version else 0, spirv)


def cuda_architectures(machine: Machine, environ: Mapping[str, str]) -> int:
    """How many architectures a CUDA build is for: those that CMAKE_ARGS names, else this machine's,
    or the first of every generation that nvcc knows where there is no GPU here; at least 1.
    """
    named = re.search(r"-DCMAKE_CUDA_ARCHITECTURES(?::\w+)?=(\d\S*)", environ.get("CMAKE_ARGS", ""))
    if named:
        return len(named[1].split(";"))
    if machine.gpus or machine.nvcc is None:
        kinds = {line.rsplit(",", 1)[-1].strip() for line in machine.gpus.splitlines()}
    else:
        listed = output_of(machine.nvcc, "--list-gpu-arch")
        kinds = {number[:-1] for number in re.findall(r"compute_(\d+)", listed)}
    return max(1, len(kinds))


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
