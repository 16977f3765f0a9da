"""From clone to running command: what scripts/localspec decides, without installing or building."""

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import bootstrap
import llama_backend
import llama_wheel
import psutil
import pytest
from bootstrap_steps import Failure, StatusLine, clean_environment, explain, run_step
from llama_backend import Machine
from llama_wheel import Source

ROOT = Path(__file__).resolve().parents[2]

LINUX = Machine("Linux", "x86_64", "Some CPU avx2", nvcc=None, cuda_version="", gpus="")
WITH_TOOLKIT = replace(LINUX, nvcc="/usr/local/cuda/bin/nvcc", cuda_version="13.0")
WITH_GPU = replace(LINUX, gpus="RTX 4090, 8.9")
WITH_BOTH = replace(WITH_TOOLKIT, gpus="RTX 4090, 8.9")
APPLE_SILICON = Machine("Darwin", "arm64", "Apple M3", nvcc=None, cuda_version="", gpus="")
INTEL_MAC = replace(APPLE_SILICON, arch="x86_64", cpu="Intel")
SOURCE = Source("0.3.36", "a" * 64)


# The backend


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (LINUX, "cpu"),
        (WITH_TOOLKIT, "cpu"),
        (WITH_GPU, "cpu"),
        (WITH_BOTH, "cuda"),
        (APPLE_SILICON, "metal"),
        (INTEL_MAC, "cpu"),
    ],
)
@pytest.mark.parametrize("requested", [None, "", "auto"])
def test_backend_follows_the_machine(machine, expected, requested):
    assert llama_backend.choose_backend(requested, machine) == expected


@pytest.mark.parametrize("requested", ["cpu", "cuda", "metal", "vulkan"])
def test_a_request_overrides_the_machine(requested):
    assert llama_backend.choose_backend(requested, WITH_BOTH) == requested


@pytest.mark.parametrize("requested", ["rocm", "CPU", "cpu "])
def test_an_unknown_backend_is_a_usage_error_that_names_the_known_ones(requested):
    with pytest.raises(Failure, match="cpu, cuda, metal, vulkan") as caught:
        llama_backend.choose_backend(requested, LINUX)
    assert caught.value.status == 2


def test_cuda_is_built_for_the_gpu_that_is_there():
    assert "-DCMAKE_CUDA_ARCHITECTURES=native" in llama_backend.cmake_options("cuda", WITH_BOTH)
    without_gpu = llama_backend.cmake_options("cuda", WITH_TOOLKIT)
    assert "-DCMAKE_CUDA_ARCHITECTURES=native" not in without_gpu


def test_a_mac_gets_metal_only_where_it_is_wanted():
    assert "-DLOCALSPEC_METAL=ON" in llama_backend.cmake_options("metal", APPLE_SILICON)
    assert "-DLOCALSPEC_METAL=OFF" in llama_backend.cmake_options("cpu", APPLE_SILICON)


@pytest.mark.parametrize(
    ("backend", "machine", "said"),
    [
        ("cuda", WITH_GPU, "CUDA toolkit"),
        ("metal", LINUX, "Mac only"),
        ("vulkan", LINUX, "Vulkan SDK"),
    ],
)
def test_a_backend_that_cannot_be_built_is_refused_before_the_download(
    backend, machine, said, monkeypatch
):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if name == "c++" else None)
    with pytest.raises(Failure, match=said):
        llama_backend.require_build_tools(backend, machine)


def test_a_missing_compiler_says_how_to_get_one(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(Failure, match="apt install build-essential"):
        llama_backend.require_build_tools("cpu", LINUX)
    monkeypatch.setattr(llama_backend, "output_of", lambda *_: "")
    with pytest.raises(Failure, match="xcode-select --install"):
        llama_backend.require_build_tools("metal", APPLE_SILICON)


@pytest.fixture
def tool(tmp_path):
    """Writes an executable that prints what it is told to, by its first argument."""

    def write(place, **answers):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        cases = "".join(f"{option}) printf '%s' '{text}';;" for option, text in answers.items())
        path.write_text(f'#!/bin/sh\ncase "$1" in {cases} *) exit 1;; esac\n')
        path.chmod(0o755)
        return str(path)

    return write


def nvcc(tool, place, release, *capabilities):
    listed = "".join(f"compute_{c}\n" for c in capabilities)
    return tool(
        f"{place}/bin/nvcc", **{"--version": f"release {release}", "--list-gpu-arch": listed}
    )


ADA = "RTX 4060 Laptop, 8.9"


def test_an_old_nvcc_on_the_path_loses_to_one_that_knows_the_gpu(tool, tmp_path, monkeypatch):
    old = nvcc(tool, "usr", "11.5", 80, 86)
    new = nvcc(tool, "usr/local/cuda-12.4", "12.4", 86, 89, 90)
    newest = nvcc(tool, "usr/local/cuda-13.0", "13.0", 86, 89, 120)
    monkeypatch.setenv("PATH", f"{Path(old).parent}:/usr/bin:/bin")
    assert llama_backend.find_nvcc({}, ADA, tmp_path) == newest
    # Newer is not better where it has dropped the GPU.
    assert llama_backend.find_nvcc({}, "H100, 9.0", tmp_path) == new
    assert llama_backend.find_nvcc({"CUDACXX": old}, ADA, tmp_path) == old


def test_a_toolkit_that_does_not_know_the_gpu_is_neither_chosen_nor_tried(tool):
    old = nvcc(tool, "usr", "11.5", 80, 86)
    machine = replace(LINUX, nvcc=old, cuda_version="11.5", gpus=ADA)
    assert llama_backend.choose_backend(None, machine) == "cpu"
    assert "LOCALSPEC_BACKEND=vulkan" in llama_backend.unused_gpu("cpu", machine)
    with pytest.raises(Failure, match=r"nvcc 11\.5 .* does not compile for RTX 4060 Laptop, 8.9"):
        llama_backend.require_cuda(machine)
    llama_backend.require_cuda(replace(machine, gpus="A100, 8.0"))


def test_an_nvcc_that_was_named_is_not_replaced_by_another_in_silence(tool, monkeypatch):
    other = nvcc(tool, "usr", "12.8", 80, 89)
    monkeypatch.setenv("CUDACXX", "/opt/none/bin/nvcc")
    with pytest.raises(Failure, match="CUDACXX names /opt/none/bin/nvcc"):
        llama_backend.require_cuda(replace(LINUX, nvcc=other, gpus=ADA))


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (WITH_GPU, "NVIDIA"),
        (replace(LINUX, other_gpus=("AMD",)), "AMD"),
        (replace(LINUX, other_gpus=("AMD", "Intel")), "AMD and Intel"),
    ],
)
def test_a_gpu_that_a_build_leaves_idle_is_offered_vulkan(machine, said):
    offer = llama_backend.unused_gpu("cpu", machine)
    assert said in offer
    assert "LOCALSPEC_BACKEND=vulkan scripts/localspec" in offer
    assert llama_backend.unused_gpu("vulkan", machine) is None


def test_no_gpu_is_offered_nothing():
    assert llama_backend.unused_gpu("cpu", LINUX) is None


def test_gpus_are_known_by_the_makers_of_their_render_nodes(tmp_path):
    for node, vendor in (("renderD128", "0x8086"), ("renderD129", "0x1002"), ("card0", "0x1af4")):
        (tmp_path / node / "device").mkdir(parents=True)
        (tmp_path / node / "device" / "vendor").write_text(f"{vendor}\n")
    assert llama_backend.other_gpus(tmp_path) == ("Intel", "AMD")
    assert llama_backend.other_gpus(tmp_path / "none") == ()


@pytest.fixture
def sdk(tmp_path, monkeypatch):
    """A Vulkan SDK with headers of some version, found by a real preprocessor."""
    monkeypatch.delenv("CXX", raising=False)

    def write(version, *, spirv=True):
        include = tmp_path / "sdk" / "include"
        (include / "vulkan").mkdir(parents=True)
        (include / "vulkan" / "vulkan.hpp").touch()
        header = f"#define VK_HEADER_VERSION {version}\n"
        (include / "vulkan" / "vulkan_core.h").write_text(header)
        if spirv:
            (include / "spirv" / "unified1").mkdir(parents=True)
            (include / "spirv" / "unified1" / "spirv.hpp").touch()
        # Without the machine's own headers, which would be found where the SDK has none.
        environ = {"VULKAN_SDK": str(tmp_path / "sdk"), "CXX": "c++ -nostdinc"}
        monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
        return environ

    return write


NEEDS_COMPILER = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")


@NEEDS_COMPILER
def test_vulkan_headers_that_are_too_old_are_named_with_the_version_that_is_needed(sdk):
    with pytest.raises(Failure, match=r"1\.3\.272 or newer, and those here are 1\.3\.239"):
        llama_backend.require_vulkan(sdk(239))


@NEEDS_COMPILER
def test_missing_spirv_headers_are_named(sdk):
    with pytest.raises(Failure, match="apt install spirv-headers"):
        llama_backend.require_vulkan(sdk(309, spirv=False))


@NEEDS_COMPILER
def test_missing_vulkan_headers_are_named(tmp_path, sdk):
    environ = sdk(309)
    shutil.rmtree(tmp_path / "sdk")
    with pytest.raises(Failure, match="apt install libvulkan-dev"):
        llama_backend.require_vulkan(environ)


@NEEDS_COMPILER
def test_vulkan_headers_that_suffice_are_accepted(sdk):
    llama_backend.require_vulkan(sdk(272))


@NEEDS_COMPILER
def test_headers_of_the_system_are_read_too(sdk):
    """Compilers put line markers before what a macro of a system header stands for."""
    include = f"{sdk(309)['VULKAN_SDK']}/include"
    found = llama_backend.vulkan_headers({"CXX": f"c++ -nostdinc -isystem {include}"})
    assert found == llama_backend.Headers(309, spirv=True)


@NEEDS_COMPILER
def test_where_cmake_was_told_to_look_we_do_not_know_better(sdk):
    llama_backend.require_vulkan({**sdk(309, spirv=False), "CMAKE_PREFIX_PATH": "/opt/spirv"})


def test_a_kernel_update_is_no_new_processor():
    before = "model name : X\nflags : fpu sse2 avx2 fma\n"
    after = "model name : X\nflags : fpu sse2 avx2 fma brand_new_mitigation\n"
    other = "model name : X\nflags : fpu sse2 avx2 fma avx512f\n"
    identity = llama_backend.cpu_identity_of
    assert identity(before) == identity(after) != identity(other)


# The cache of built wheels


def key(backend="cpu", machine=LINUX, source=SOURCE, options="set(A ON)", **environ):
    return llama_wheel.wheel_key(source, backend, machine, environ, options)


@pytest.mark.parametrize(
    "other",
    [
        {"backend": "cuda"},
        {"backend": "vulkan"},
        {"machine": replace(LINUX, cpu="Another CPU")},
        {"machine": replace(LINUX, arch="aarch64")},
        {"source": replace(SOURCE, sha256="b" * 64)},
        {"source": replace(SOURCE, version="0.3.37")},
        {"options": "set(A OFF)"},
        {"CMAKE_ARGS": "-DGGML_BLAS=ON"},
        {"CXX": "clang++"},
        {"CUDAHOSTCXX": "g++-12"},
        {"NVCC_PREPEND_FLAGS": "-ccbin g++-12"},
    ],
)
def test_builds_that_could_differ_never_share_a_wheel(other):
    assert key() != key(**other)


def test_a_gpu_matters_to_cuda_builds_alone():
    assert key(machine=LINUX) == key(machine=WITH_BOTH)
    assert key("cuda", WITH_BOTH) != key("cuda", replace(WITH_BOTH, gpus="H100, 9.0"))
    assert key("cuda", WITH_BOTH) != key("cuda", replace(WITH_BOTH, cuda_version="12.8"))


def test_the_key_names_version_and_backend_for_people():
    assert key("cuda").startswith("0.3.36-cuda-")


@pytest.mark.parametrize(
    ("environ", "system", "expected"),
    [
        ({"LOCALSPEC_HOME": "/x"}, "Linux", "/x/cache/llama-cpp-python"),
        ({"XDG_CACHE_HOME": "/c"}, "Linux", "/c/localspec/llama-cpp-python"),
        ({}, "Linux", "~/.cache/localspec/llama-cpp-python"),
        ({}, "Darwin", "~/Library/Caches/localspec/llama-cpp-python"),
    ],
)
def test_the_cache_is_where_the_user_wants_it(environ, system, expected):
    assert llama_wheel.cache_directory(environ, system) == Path(expected).expanduser()


@pytest.mark.parametrize("filters", [True, False])
def test_an_archive_is_unpacked_by_every_python(tmp_path, monkeypatch, filters):
    """Python before 3.11.4, which Debian 12 has, knows no filters of archives."""
    source = tmp_path / "some-1.0"
    source.mkdir()
    (source / "file").write_text("text")
    archive = shutil.make_archive(str(tmp_path / "some"), "gztar", tmp_path, "some-1.0")
    if not filters:
        # Python 3.13 warns of archives that are unpacked without a filter.
        there = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
        unpacked = shutil.unpack_archive

        def unpack_archive(archive, target):  # takes no filter, as there
            unpacked(archive, target, **there)

        monkeypatch.setattr(shutil, "unpack_archive", unpack_archive)
    elif not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python has no filters")
    llama_wheel.unpack(Path(archive), tmp_path / "target")
    assert (tmp_path / "target" / "file").read_text() == "text"


def test_a_kept_wheel_is_found_again_and_a_changed_one_is_not(tmp_path):
    built = tmp_path / "some-1.0-py3-none-any.whl"
    built.write_bytes(b"wheel")
    folder = tmp_path / "cache"
    kept = llama_wheel.keep_wheel(built, folder)
    assert llama_wheel.cached_wheel(folder) == kept
    kept.write_bytes(b"wheeL")
    assert llama_wheel.cached_wheel(folder) is None


def test_a_wheel_whose_checksum_was_never_written_is_not_trusted(tmp_path):
    (tmp_path / "some-1.0-py3-none-any.whl").write_bytes(b"half a wheel")
    assert llama_wheel.cached_wheel(tmp_path) is None
    assert llama_wheel.cached_wheel(tmp_path / "missing") is None


@pytest.mark.parametrize("place", [".", "..", "some-1.0-py3-none-any.whl"])
def test_a_wheel_that_others_could_have_exchanged_is_not_installed(tmp_path, capsys, place):
    built = tmp_path / "some-1.0-py3-none-any.whl"
    built.write_bytes(b"wheel")
    folder = tmp_path / "cache" / "key"
    mask = os.umask(0)
    try:
        llama_wheel.keep_wheel(built, folder)
    finally:
        os.umask(mask)
    assert llama_wheel.cached_wheel(folder) is not None
    (folder / place).chmod(0o777)
    assert llama_wheel.cached_wheel(folder) is None
    assert "is not used: others may write to" in capsys.readouterr().err


def test_a_cache_that_others_may_write_to_is_refused_before_the_build(tmp_path):
    folder = tmp_path / "cache" / "key"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(bootstrap.Failure, match=r"others may write to .*chmod 700"):
        llama_wheel.obtain_wheel(None, "cpu", None, folder, None, None)
    with pytest.raises(bootstrap.Failure, match=r"others may write to .*chmod 700"):
        bootstrap.usable_cache(folder)


def test_a_cache_that_cannot_be_made_is_replaced_by_one_in_the_environment(tmp_path):
    (tmp_path / "file").touch()
    assert bootstrap.usable_cache(tmp_path / "file" / "cache") == bootstrap.VENV / "cache"
    assert bootstrap.usable_cache(tmp_path / "cache") == tmp_path / "cache"


def test_a_wheel_in_the_usual_cache_serves_another_home_too(tmp_path):
    built = tmp_path / "some-1.0-py3-none-any.whl"
    built.write_bytes(b"wheel")
    usual, own = tmp_path / "usual" / "key", tmp_path / "own" / "key"
    llama_wheel.keep_wheel(built, usual)
    (usual / "ladder.json").write_text('{"natively": "SIGILL"}')
    llama_wheel.adopt(own, usual)
    kept = llama_wheel.cached_wheel(own)
    assert kept is not None
    assert kept.read_bytes() == b"wheel"
    assert (own / "ladder.json").read_text() == '{"natively": "SIGILL"}'


def test_a_wheel_that_failed_here_is_not_taken_from_there(tmp_path):
    built = tmp_path / "some-1.0-py3-none-any.whl"
    built.write_bytes(b"wheel")
    usual, own = tmp_path / "usual" / "key", tmp_path / "own" / "key"
    llama_wheel.keep_wheel(built, usual)
    own.mkdir(parents=True)
    (own / "ladder.json").write_text('{"natively": "SIGILL"}')
    llama_wheel.adopt(own, usual)
    assert llama_wheel.cached_wheel(own) is None


def test_the_lock_pins_the_one_archive_that_is_built():
    source = llama_wheel.read_source(ROOT / "requirements" / "llama.lock")
    assert f'"llama-cpp-python=={source.version}"' in (ROOT / "pyproject.toml").read_text()


# What of .venv can be kept

GOOD_STATE = {"root": str(bootstrap.ROOT)}


@pytest.mark.parametrize(
    ("state", "wanted", "running", "reason"),
    [
        (GOOD_STATE, None, "3.12", ""),
        (GOOD_STATE, "3.12", "3.12", ""),
        (GOOD_STATE, "3.13", "3.12", "LOCALSPEC_PYTHON"),
        (GOOD_STATE, None, None, "no longer runs"),
        ({}, None, "3.12", "another place"),
        ({"root": "/elsewhere"}, None, "3.12", "another place"),
        ({**GOOD_STATE, "unfinished": "engine"}, None, "3.12", "interrupted"),
    ],
)
def test_an_environment_is_kept_only_when_it_is_whole_and_ours(state, wanted, running, reason):
    answer = bootstrap.why_remake(state, wanted, running)
    assert (reason in answer) if reason else not answer


@pytest.mark.parametrize("content", [None, "", "{", "[]", "\0"])
def test_damaged_notes_count_as_none(tmp_path, content):
    path = tmp_path / "bootstrap.json"
    if content is not None:
        path.write_text(content)
    assert bootstrap.load_state(path) == {}


def test_a_part_that_ends_badly_stays_unfinished(tmp_path, monkeypatch):
    path = tmp_path / "bootstrap.json"
    monkeypatch.setattr(bootstrap.save_state, "__defaults__", (path,))
    state = {"engine": "old"}
    with pytest.raises(KeyboardInterrupt), bootstrap.part(state, "engine", "new"):
        raise KeyboardInterrupt
    assert bootstrap.load_state(path) == {"unfinished": "engine"}
    with bootstrap.part(state, "engine", "new"):
        pass
    assert bootstrap.load_state(path) == {"engine": "new"}


@pytest.fixture
def installs(tmp_path, monkeypatch):
    """The requirements that pip was asked for, in a checkout whose locks say only their name."""
    asked = []
    (tmp_path / "requirements").mkdir()
    for name in bootstrap.PROFILES:
        (tmp_path / "requirements" / f"{name}.lock").write_text(name)
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap.save_state, "__defaults__", (tmp_path / "bootstrap.json",))
    monkeypatch.setattr(bootstrap, "pip_install", lambda _, *rest: asked.append(rest[-1].name))
    return asked


def test_the_dev_packages_serve_the_runtime_too(installs):
    state = {}
    for profile in ("dev", "runtime", "dev"):
        bootstrap.install_packages(state, profile)
    assert installs == ["dev.lock"]


def test_installing_one_set_of_packages_forgets_the_other(installs, tmp_path):
    state = {}
    bootstrap.install_packages(state, "dev")
    for name in bootstrap.PROFILES:
        (tmp_path / "requirements" / f"{name}.lock").write_text("newer")
    bootstrap.install_packages(state, "runtime")
    (tmp_path / "requirements" / "dev.lock").write_text("dev")
    bootstrap.install_packages(state, "dev")
    assert installs == ["dev.lock", "runtime.lock", "dev.lock"]


def test_a_python_without_venv_says_which_package_is_missing(monkeypatch):
    monkeypatch.setattr(bootstrap.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Failure, match="apt install python3-venv"):
        bootstrap.require_venv_module()


# The shell's part: a checkout with a stand-in for everything slow


def test_a_kernel_that_cannot_be_compiled_is_left_out_and_said_once(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bootstrap.save_state, "__defaults__", (tmp_path / "bootstrap.json",))
    monkeypatch.setattr(bootstrap, "LOG", tmp_path / "log")
    monkeypatch.setattr(bootstrap, "PYTHON", "false")
    state = {}
    bootstrap.compile_kernel(state)
    assert "going on without it" in capsys.readouterr().err
    bootstrap.compile_kernel(state)
    assert capsys.readouterr().err == ""


@pytest.fixture
def checkout(tmp_path):
    """A checkout in a folder with a space, whose bootstrap and Python only say what they got."""
    root = tmp_path / "my checkout"
    scripts = root / "scripts"
    shutil.copytree(ROOT / "requirements", root / "requirements")
    shutil.copy(ROOT / "pyproject.toml", root)
    scripts.mkdir()
    for name in ("localspec", "environment.sh"):
        shutil.copy(ROOT / "scripts" / name, scripts)
    for name in ("options.cmake", "backend.py", "check.py", "ladder.py", "wheel.py"):
        (scripts / f"llama_{name}").touch()
    kernel = Path("localspec", "core", "kernel")
    (root / kernel).mkdir(parents=True)
    shutil.copy(ROOT / kernel / "rows.c", root / kernel)
    (scripts / "bootstrap.py").write_text(
        "import os, pathlib, sys\n"
        "venv = pathlib.Path(__file__).parent.parent / '.venv'\n"
        "print('bootstrap', sys.argv[1], flush=True)\n"
        "(venv / f'{sys.argv[1]}.stamp').write_text(os.environ['LOCALSPEC_STAMP'] + '\\n')\n"
        "os.execvp(sys.argv[2], sys.argv[2:])\n"
    )
    python = root / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$PWD"\nprintf "<%s>" "$@"\n')
    python.chmod(0o755)
    return root


def start(program, *arguments, cwd="/", **environ):
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("LOCALSPEC_", "CMAKE_"))}
    # The interpreter of the tests stands for the one on a user's PATH.
    path = f"{Path(sys.executable).parent}:{kept['PATH']}"
    return subprocess.run(
        [program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**kept, "PATH": path, **environ},
    )


def test_the_first_start_prepares_and_the_second_does_not(checkout, tmp_path):
    program = checkout / "scripts" / "localspec"
    first = start(program, "run", "two words", "", "$HOME", cwd=tmp_path)
    said = f"{tmp_path}\n<-P><-m><localspec><run><two words><><$HOME>"
    assert (first.returncode, first.stdout) == (0, f"bootstrap runtime\n{said}"), first.stderr
    second = start(program, "run", "two words", "", "$HOME", cwd=tmp_path)
    assert (second.returncode, second.stdout) == (0, said)


def test_a_link_to_the_script_works(checkout, tmp_path):
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin" / "localspec"
    link.symlink_to("../my checkout/scripts/localspec")
    assert start(link).stdout.endswith("<localspec>")


@pytest.mark.parametrize(
    "environ",
    [{"LOCALSPEC_BACKEND": "cpu"}, {"CMAKE_ARGS": "-DX=1"}, {"LOCALSPEC_PYTHON": sys.executable}],
)
def test_another_wish_makes_the_environment_stale(checkout, environ):
    program = checkout / "scripts" / "localspec"
    start(program)
    assert start(program, **environ).stdout.startswith("bootstrap")
    assert not start(program, **environ).stdout.startswith("bootstrap")


@pytest.mark.parametrize(
    "name",
    ["pyproject.toml", "requirements/runtime.lock", "scripts/llama_options.cmake"],
)
def test_a_changed_file_makes_the_environment_stale(checkout, name):
    program = checkout / "scripts" / "localspec"
    start(program)
    with (checkout / name).open("a") as file:
        file.write("# changed\n")
    assert start(program).stdout.startswith("bootstrap")


def test_a_moved_checkout_is_stale(checkout):
    start(checkout / "scripts" / "localspec")
    moved = checkout.rename(checkout.with_name("moved"))
    assert start(moved / "scripts" / "localspec").stdout.startswith("bootstrap")


def test_another_processor_makes_the_environment_stale(checkout, tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    shell = checkout / "scripts" / "environment.sh"
    shell.write_text(shell.read_text().replace("/proc/cpuinfo", str(cpuinfo)))
    program = checkout / "scripts" / "localspec"
    core = "processor : {}\nmodel name : {}\ncpu MHz : {}\nflags : fpu avx2\n\n"
    cpuinfo.write_text(core.format(0, "Some CPU", 800) + core.format(1, "Some CPU", 800))
    assert start(program).stdout.startswith("bootstrap")
    cpuinfo.write_text(core.format(0, "Some CPU", 3000) + core.format(1, "Some CPU", 800))
    assert not start(program).stdout.startswith("bootstrap")
    cpuinfo.write_text(core.format(0, "Another CPU", 3000))
    assert start(program).stdout.startswith("bootstrap")


def test_who_ends_the_script_ends_its_bootstrap(checkout):
    (checkout / "scripts" / "bootstrap.py").write_text(
        "import os, signal\nprint(os.getpid(), flush=True)\nsignal.pause()\n"
    )
    program = checkout / "scripts" / "localspec"
    with subprocess.Popen([program], stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            assert int(process.stdout.readline()) == process.pid
            process.terminate()
            assert process.wait(timeout=60) == -signal.SIGTERM
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_a_bootstrap_becomes_the_script_again_in_its_own_process(tmp_path):
    script = tmp_path / "script"
    script.write_text('echo "$$ $1 $LOCALSPEC_READY ${LOCALSPEC_STAMP:-none}"\n')
    program = "import bootstrap, os, sys; print(os.getpid(), end=' ', flush=True); "
    program += "bootstrap.become(['sh', sys.argv[1], 'two words'], 'runtime')"
    said = subprocess.run(
        [sys.executable, "-c", program, script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "scripts"), "LOCALSPEC_STAMP": "x"},
    ).stdout
    before, after, rest = said.split(" ", 2)
    assert before == after
    assert rest == "two words runtime none\n"


def test_a_failed_bootstrap_starts_nothing_and_passes_its_status_on(checkout):
    (checkout / "scripts" / "bootstrap.py").write_text("raise SystemExit(2)\n")
    result = start(checkout / "scripts" / "localspec")
    assert (result.returncode, result.stdout) == (2, "")


def test_no_python_or_a_wrong_one_is_said_in_one_line(checkout, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "cat", "cksum", "dirname", "uname"):
        (tools / name).symlink_to(shutil.which(name))
    program = checkout / "scripts" / "localspec"
    none = start(program, PATH=str(tools))
    wrong = start(program, LOCALSPEC_PYTHON="/bin/false")
    assert none.returncode == wrong.returncode == 1
    assert "found none on PATH" in none.stderr
    assert "LOCALSPEC_PYTHON=/bin/false is not" in wrong.stderr
    assert none.stderr.count("\n") == wrong.stderr.count("\n") == 1


# Steps: progress, causes, interruption


def test_progress_counts_ninja_and_promises_nothing_early():
    now = [0.0]
    status = StatusLine("building", io.StringIO(), clock=lambda: now[0])
    assert status.text() == "building  0:00"
    now[0] = 10
    status.read("[2/80] Building CXX object x.o")
    assert status.text() == "building  [2/80]  0:10"
    now[0] = 65
    status.read("[40/80] Building CXX object y.o")
    status.read("some warning of [1/2]")
    assert status.text() == "building  [40/80]  1:05  about 1:05 left"


def test_without_a_terminal_a_line_comes_now_and_then():
    now = [0.0]
    stream = io.StringIO()
    status = StatusLine("building", stream, clock=lambda: now[0])
    for now[0] in range(100):
        status.draw()
    assert stream.getvalue() == "building  0:30\nbuilding  1:00\nbuilding  1:30\n"


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("NameResolutionError(...): Failed to resolve", "index could not be reached"),
        ("THESE PACKAGES DO NOT MATCH THE HASHES FROM", "lock file"),
        ("ERROR: No matching distribution found for x", "LOCALSPEC_PYTHON"),
        ("c++: fatal error: Killed signal terminated program", "CMAKE_BUILD_PARALLEL_LEVEL=1"),
        ("#error -- unsupported GNU version! gcc versions later than 12 are not", "CUDAHOSTCXX"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_89'", "CUDACXX"),
        ("No CMAKE_CUDA_COMPILER could be found.", "CUDACXX"),
        ("/usr/bin/ld: cannot find -lcuda: No such file", "driver"),
        ("  SPIRV-HeadersConfig.cmake\n  spirv-headers-config.cmake", "spirv-headers"),
        ("CMake Error: Could NOT find Vulkan (missing: Vulkan_LIBRARY)", "libvulkan-dev"),
        ("error: ‘LayerSettingEXT’ is not a member of ‘vk’", "Vulkan headers are too old"),
        ("error: no type named 'LayerSettingEXT' in namespace 'vk'", "headers are too old"),
    ],
)
def test_known_causes_become_advice(output, advice):
    assert advice in explain(f"before\n{output}\nafter")


def test_an_unknown_cause_is_not_guessed():
    assert explain("x.cpp:3: error: no member named 'y'") is None


def test_a_failed_step_names_its_cause_and_its_log(tmp_path):
    log = tmp_path / "log"
    script = "print('No space left on device'); raise SystemExit(3)"
    with pytest.raises(Failure, match=r"testing failed: the disk is full.*\[log: ") as caught:
        run_step("testing", [sys.executable, "-c", script], log)
    assert str(log) in str(caught.value)
    assert "No space left" in log.read_text()


def gone(pid):
    """Whether a process has ended; nobody may have collected it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_an_interrupted_step_leaves_nothing_running(tmp_path):
    log = tmp_path / "log"
    script = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()"
    )

    def press_ctrl_c():
        end = time.monotonic() + 100
        while not log.exists() or not re.search(r"^\d+\n", log.read_text(), re.MULTILINE):
            if time.monotonic() > end:
                break
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    # Jobs that a shell started in the background ignore Ctrl-C; this test must not.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=press_ctrl_c).start()
        with pytest.raises(KeyboardInterrupt):
            run_step("testing", [sys.executable, "-c", script], log)
    finally:
        signal.signal(signal.SIGINT, before)
    child = next(int(line) for line in log.read_text().splitlines() if line.isdigit())
    end = time.monotonic() + 100
    while not gone(child):
        assert time.monotonic() < end, "it still runs"
        time.sleep(0.01)


def test_settings_that_send_pip_elsewhere_are_overruled():
    kept = clean_environment({"PIP_USER": "1", "PIP_TARGET": "/x", "PIP_INDEX_URL": "u"})
    assert kept["PIP_USER"] == "0"
    assert "PIP_TARGET" not in kept
    assert kept["PIP_INDEX_URL"] == "u"
