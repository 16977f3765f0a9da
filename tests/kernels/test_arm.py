"""The kernels for ARM, which few who change them can run, under an emulator of the processor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from emulated_kernels import Halves, Kernels, emulated, of_this_machine

from localspec.compiling import cxx
from localspec.kernels import build, prove
from localspec.kernels.formats import FORMATS, Format
from localspec.kernels.instruction_sets import of_machine
from localspec.kernels.library import Floats, KernelLibrary

pytestmark = pytest.mark.slow
UNITS = of_machine("aarch64")
SIZES = ((64, 64), (80, 48), (20, 12), (128, 7))
"""Numbers of a key and a value."""


@pytest.fixture(scope="module", params=UNITS, ids=[u.name for u in UNITS])
def kernels(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kernels]:
    """Those of each instruction set."""
    with emulated(request.param, programs(tmp_path_factory)) as found:
        yield found


def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this run, for all processes of pytest-xdist: compiling takes seconds."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kernels"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def of_here(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Kernels | KernelLibrary, str]]:
    """Kernels of this machine, and the least instruction set: of the library that scripts/localspec
    compiled, if it did.
    """
    known, libraries = build.stored(), cxx.library_folder()
    if known is not None and libraries is not None:
        library = KernelLibrary(known.path, libraries)
        yield library, library.units()[-1]
        return
    with of_this_machine(programs(tmp_path_factory)) as found:
        yield found, ""


@pytest.mark.parametrize("form", FORMATS.values(), ids=list(FORMATS))
def test_every_format_is_proved(kernels: Kernels, form: Format) -> None:
    as_library: object = kernels
    for case in prove.cases(form):
        worst = prove.prove(as_library, "", case)  # type: ignore[arg-type]
        assert worst < prove.TOLERATED


@pytest.mark.parametrize("form", FORMATS.values(), ids=list(FORMATS))
def test_products_have_the_bits_of_this_machine(
    kernels: Kernels, of_here: tuple[Kernels | KernelLibrary, str], form: Format
) -> None:
    """Each column is one sum in one order by exact steps, on whatever processor."""
    library, least = of_here
    for case in prove.cases(form):
        rows = case.rows[:21]
        theirs = library.product(least, form.ggml_type, case.weights, rows, case.m)
        found = kernels.product("", form.ggml_type, case.weights, rows, case.m)
        np.testing.assert_array_equal(found, theirs)


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_products_of_rows_that_are_not_packed_are_right_in_every_width(
    kernels: Kernels, name: str
) -> None:
    form, rng = FORMATS[name], np.random.default_rng(4)
    for m, k in ((1, 33), (13, 64), (20, 71)):
        x = rng.normal(0, 1, (20, k)).astype(np.float32)
        a = form.random(m * k, 1.0, rng)
        single = np.concatenate(
            [kernels.rows_product(form.ggml_type, a, x[i : i + 1], m) for i in range(20)]
        )
        expected = x.astype(np.float64) @ form.numbers(a).reshape(m, k).T
        np.testing.assert_allclose(single, expected, atol=1e-5 * np.sqrt(k))
        for n in range(1, 21):
            np.testing.assert_array_equal(
                kernels.rows_product(form.ggml_type, a, x[:n], m), single[:n]
            )


def cache(cells: int, k_size: int, v_size: int) -> tuple[Floats, Halves, Halves, Halves]:
    """Eight queries and a cache of which every row sees another part."""
    rng = np.random.default_rng(cells)
    q = rng.normal(0, 3, (8, k_size)).astype(np.float32)
    k = rng.normal(0, 1, (cells, k_size)).astype(np.float16)
    v = rng.normal(0, 1, (cells, v_size)).astype(np.float16)
    mask = np.where(rng.random((8, cells)) < 0.6, 0.0, -np.inf).astype(np.float16)
    mask[:, 0] = 0
    return q, k, v, mask


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("cells", [1, 9, 32, 77, 150])
def test_attention_is_right_and_each_row_alone_has_its_bits(
    kernels: Kernels, cells: int, sizes: tuple[int, int]
) -> None:
    q, k, v, mask = cache(cells, *sizes)
    found = kernels.attention(q, k, v, mask)
    scores = q.astype(np.float64) @ k.astype(np.float64).T / np.sqrt(sizes[0]) + mask
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = shares / shares.sum(axis=1, keepdims=True) @ v.astype(np.float64)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    for rows in range(1, 9):
        together = kernels.attention(q[:rows], k, v, mask[:rows])
        np.testing.assert_array_equal(together, found[:rows])
    for r in range(8):
        alone = kernels.attention(q[r : r + 1], k, v, mask[r : r + 1])
        np.testing.assert_array_equal(alone[0], found[r])


@pytest.mark.parametrize("sizes", SIZES)
def test_attention_does_not_depend_on_where_unseen_cells_lie(
    kernels: Kernels, sizes: tuple[int, int]
) -> None:
    q, k, v, mask = cache(77, *sizes)
    found = kernels.attention(q, k, v, mask)
    rng = np.random.default_rng(5)
    for cells in (78, 110, 200):
        places = np.sort(rng.choice(cells, 77, replace=False))
        moved_k = rng.normal(0, 9, (cells, sizes[0])).astype(np.float16)
        moved_v = rng.normal(0, 9, (cells, sizes[1])).astype(np.float16)
        moved_mask = np.full((8, cells), -np.inf, np.float16)
        moved_k[places], moved_v[places], moved_mask[:, places] = k, v, mask
        np.testing.assert_array_equal(kernels.attention(q, moved_k, moved_v, moved_mask), found)


def test_a_row_that_sees_nothing_is_zero(kernels: Kernels) -> None:
    q, k, v, mask = cache(40, 64, 64)
    mask[3] = -np.inf
    found = kernels.attention(q, k, v, mask)
    assert not found[3].any()
    assert found[2].any()
