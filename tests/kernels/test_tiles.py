"""AMX's tiles give the bits of AVX-512 VNNI; where the system refuses them, that computes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from emulated_kernels import of_this_machine

from localspec.compiling import cxx
from localspec.kernels import build, prove
from localspec.kernels.compiler import SOURCE
from localspec.kernels.formats import FORMATS, Format
from localspec.kernels.library import KernelLibrary
from localspec.kernels.prove import Case, WrongProductError
from localspec.llama import own_kernels
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.llama.proof import write_model

QUANTIZED = [form for form in FORMATS.values() if form.rounds]
WIDTHS = (*range(9, 41), 127, 128, 129, 200)
"""Rows of products: one tile and several of each height, one share and two."""


@pytest.fixture(scope="module")
def kernels() -> KernelLibrary:
    """The library that scripts/localspec compiled."""
    known, libraries = build.stored(), cxx.library_folder()
    if known is None or libraries is None:
        pytest.skip("the kernels are not compiled here")
    library = KernelLibrary(known.path, libraries)
    if "amx" not in library.units():
        pytest.skip("this processor has no AMX, or the system refuses it")
    return library


def assert_same_bits(kernels: KernelLibrary, case: Case, width: int) -> None:
    arguments = (case.format.ggml_type, case.weights, case.rows[:width], case.m)
    tiles = kernels.product("amx", *arguments)
    vectors = kernels.product("avx512vnni", *arguments)
    np.testing.assert_array_equal(tiles.view(np.uint32), vectors.view(np.uint32))


@pytest.mark.parametrize("form", QUANTIZED, ids=[form.name for form in QUANTIZED])
def test_products_have_the_bits_of_avx512_vnni(kernels: KernelLibrary, form: Format) -> None:
    for case in prove.cases(form):
        for width in WIDTHS:
            assert_same_bits(kernels, case, width)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_K", "Q6_K"])
def test_rows_that_are_too_long_for_the_cache_are_computed_in_shares(
    kernels: KernelLibrary, name: str
) -> None:
    rng, k, m, n = np.random.default_rng(3), 16_384, 83, 100
    rows = rng.normal(0, 1, (n, k)).astype(np.float32)
    weights = FORMATS[name].random(m * k, 1 / 128, rng)
    assert_same_bits(kernels, Case(FORMATS[name], k, m, weights, rows), n)


class _Stack(ctypes.Structure):
    """A thread's stack for signals."""

    _fields_ = (("at", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


def units_without_room() -> tuple[str, ...]:
    """Instruction sets where a stack for signals is too small for tiles: Linux refuses them."""
    memory = ctypes.create_string_buffer(8192)
    stack = _Stack(ctypes.addressof(memory), 0, len(memory))
    assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0
    known, libraries = build.stored(), cxx.library_folder()
    assert known is not None
    assert libraries is not None
    return KernelLibrary(known.path, libraries).units()


def run(code: str) -> str:
    """What a process prints that does something with this module."""
    places = [str(Path(__file__).parent), *sys.path]
    code = f"import sys; sys.path[:] = {places!r}; import test_tiles; {code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("kernels")
def test_where_the_system_refuses_tiles_avx512_computes() -> None:
    assert run("print(*test_tiles.units_without_room())").split()[0] == "avx512vnni"


def passes(path: Path, beside: str) -> None:
    """Save the logits that llama.cpp's own tiles compute, ``beside`` passes of ours or nothing."""
    known, libraries = build.stored(), cxx.library_folder()
    assert known is not None
    assert libraries is not None
    own_kernels.register(known.path, libraries, "amx")
    theirs = Model(path, gpu_layers=0, alone=False, own_kernels=False)
    ours = Model(path, gpu_layers=0, alone=False, own_kernels=True)
    assert "AMX" in theirs.buffers
    assert ours.uses_own_kernels
    context, other = (Context(model, n_ctx=256, threads=1) for model in (theirs, ours))
    rows = []
    for n in (1, 40, 16, 1, 40):
        (found,) = context.forward([(0, list(range(n)), n)])
        rows.append(found.copy())
        context.truncate(0, 0)
        if beside == "ours":
            other.forward([(0, list(range(40)), 1)])
            other.truncate(0, 0)
    np.save(path.with_name(f"{beside}.npy"), np.concatenate(rows))


@pytest.mark.usefixtures("kernels")
def test_llama_s_own_tiles_work_beside_ours(tmp_path: Path) -> None:
    """It configures tiles once for a thread: ours put that back."""
    path = tmp_path / "model.gguf"
    write_model(path, "Q4_0")
    for beside in ("nothing", "ours"):
        run(f"from pathlib import Path; test_tiles.passes(Path({str(path)!r}), {beside!r})")
    alone, found = (np.load(tmp_path / f"{beside}.npy") for beside in ("nothing", "ours"))
    np.testing.assert_array_equal(found, alone)


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    """A source whose tiles add to the sums of what was computed before."""
    source = tmp_path / "source"
    shutil.copytree(SOURCE, source)
    header = source / "isa" / "amx.h"
    text = header.read_text(encoding="utf-8")
    broken = text.replace('"tilezero %%tmm" #tile', '"nop"')
    assert broken != text
    header.write_text(broken, encoding="utf-8")
    return source


@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
def test_the_proof_refuses_wrong_tiles(tmp_path: Path, faulty: Path) -> None:
    with of_this_machine(tmp_path, "amx", faulty, level="-O1") as found:
        as_library: object = found
        for name in ("Q4_0", "Q6_K"):
            case = list(prove.cases(FORMATS[name]))[-1]
            with pytest.raises(WrongProductError, match="rows at once give other bits"):
                prove.prove(as_library, "", case)  # type: ignore[arg-type]
