"""What llama.cpp is built for on a machine: tools, GPUs, the key of a build."""

import os
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import bootstrap
import llama_backend
import llama_time
import llama_wheel
import pytest
from bootstrap_steps import Failure
from llama_backend import Headers, Machine
from llama_time import Probes
from llama_wheel import Source

ROOT = Path(__file__).resolve().parents[2]

LINUX = Machine("Linux", "x86_64", "Some CPU avx2", nvcc=None, cuda_version="", gpus="")
WITH_TOOLKIT = replace(LINUX, nvcc="/opt/toolkit/bin/nvcc", cuda_version="13.0")
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


ADA = "RTX 4060 Laptop, 8.9"


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


@pytest.mark.parametrize("told", [[], ["localspec_cublas"]], ids=["without", "with"])
def test_an_nvcc_without_cublas_is_neither_chosen_nor_tried(tool, told):
    said = " ".join(["localspec_probe", *told])
    asked = {"--version": "release 13.0", "--list-gpu-arch": "compute_89", "-E": said}
    machine = replace(LINUX, nvcc=tool("usr/bin/nvcc", **asked), cuda_version="13.0", gpus=ADA)
    if told:
        assert llama_backend.choose_backend(None, machine) == "cuda"
        llama_backend.require_cuda(machine)
        return
    assert llama_backend.choose_backend(None, machine) == "cpu"
    notice = llama_backend.unused_gpu("cpu", machine)
    assert notice.index("LOCALSPEC_BACKEND=vulkan") < notice.index("libcublas-dev-13-0")
    with pytest.raises(Failure, match=r"cublas_v2\.h.*libcublas-dev-13-0"):
        llama_backend.require_cuda(machine)


def test_a_card_without_a_toolkit_hears_the_quickest_way_first(monkeypatch):
    def installed(environ):
        return None

    def missing(environ):
        raise Failure("there is no glslc")

    monkeypatch.setattr(llama_backend, "require_vulkan", missing)
    monkeypatch.setattr(llama_backend, "vulkan_headers", lambda _: Headers(0, spirv=False))
    lacking = llama_backend.unused_gpu("cpu", WITH_GPU)
    assert lacking.index("apt install glslc") < lacking.index("LOCALSPEC_BACKEND=vulkan")
    assert lacking.index("LOCALSPEC_BACKEND=vulkan") < lacking.index("a CUDA toolkit")
    monkeypatch.setattr(llama_backend, "vulkan_headers", lambda _: Headers(239, spirv=True))
    assert "apt install" not in llama_backend.unused_gpu("cpu", WITH_GPU)  # which has the old ones
    assert "vulkan.lunarg.com" in llama_backend.unused_gpu("cpu", WITH_GPU)
    monkeypatch.setattr(llama_backend, "require_vulkan", installed)
    assert "apt install" not in llama_backend.unused_gpu("cpu", WITH_GPU)


def test_a_build_for_all_generations_of_gpus_is_expected_to_take_longer(tool):
    listed = "".join(f"compute_{c}\n" for c in (75, 80, 86, 89, 90, 100, 120))
    machine = replace(LINUX, nvcc=tool("usr/bin/nvcc", **{"--list-gpu-arch": listed}))
    assert llama_backend.cuda_architectures(machine, {}) == 5  # 7, 8, 9, 10 and 12
    assert llama_backend.cuda_architectures(replace(machine, gpus=f"{ADA}\n{ADA}"), {}) == 1
    assert llama_backend.cuda_architectures(LINUX, {}) == 1
    named = {"CMAKE_ARGS": "-DGGML_BLAS=ON -DCMAKE_CUDA_ARCHITECTURES=86-real;89"}
    assert llama_backend.cuda_architectures(machine, named) == 2
    probes = [Probes(wall=2.0, processor=8.0)]
    one = llama_time.of_probes("cuda", replace(machine, gpus=ADA), probes, 4)
    all_of_them = llama_time.of_probes("cuda", machine, probes, 4)
    assert all_of_them.seconds == pytest.approx(one.seconds * 3.8)


@pytest.mark.slow
def test_the_expected_time_follows_what_a_piece_of_compiling_takes(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    measured = llama_time.expected("cpu", LINUX, tmp_path)
    assert measured.seconds > 0
    assert measured.probe > 0
    assert list(tmp_path.iterdir()) == []
    slow, fast = (llama_time.of_probes("cpu", LINUX, [Probes(t, 2 * t)], 2) for t in (4.0, 2.0))
    assert slow.seconds == slow.alone == 2 * fast.seconds
    monkeypatch.setenv("CXX", "false")
    assert llama_time.expected("cpu", LINUX, tmp_path).seconds == 0


def test_beside_neighbours_both_times_are_said():
    def words(*probes: Probes) -> str:
        return llama_time.in_words(llama_time.of_probes("cpu", LINUX, probes, 1))

    work = llama_time.PROBES["cpu"]
    assert words(Probes(0.0, 0.0)) == "some minutes"
    assert words(Probes(360 / work, 360 / work)) == "about 6 min"
    assert words(Probes(80 / work, 80 / work)) == "about 80 s"
    assert words(Probes(40 / work, 20 / work)) == "20 to 40 s, 40 if it stays as busy"
    # the neighbours of one moment are not those of the next
    probes = [Probes(wall / work, 120 / work) for wall in (200, 600, 700)]
    assert words(*probes) == "2 to 8 min, 8 if it stays as busy"


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
    assert found == Headers(309, spirv=True)


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
