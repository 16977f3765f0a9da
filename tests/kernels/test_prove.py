"""Kernels that are wrong in any way are found by the proof; what crashes or hangs is an answer."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kernel_stand_ins import stand_in
from numpy.typing import NDArray

from localspec.compiling import cxx
from localspec.core.errors import LocalspecError, NoKernelError
from localspec.core.files import native
from localspec.kernels import build, prove
from localspec.kernels.formats import FORMATS
from localspec.kernels.library import Floats, KernelLibrary
from localspec.kernels.proof_report import WRONG
from localspec.kernels.prove import Case, WrongProductError


def proof(path: Path, unit: str = "stand_in") -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-P", "-m", "localspec.kernels.prove", str(path)]
    line += [str(cxx.library_folder()), unit]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def last(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def test_kernels_that_are_right_pass(tmp_path: Path) -> None:
    done = proof(stand_in(tmp_path))
    assert done.returncode == 0, done.stderr
    assert 0.0 < last(done)["worst"] < prove.TOLERATED  # type: ignore[operator]


def test_kernels_whose_products_are_off_by_a_thousandth_of_a_weight_fail(
    tmp_path: Path,
) -> None:
    done = proof(stand_in(tmp_path, "OFF"))
    assert done.returncode == WRONG
    assert "times what rounding explains" in str(last(done)["wrong"])


def test_kernels_whose_bits_depend_on_the_width_fail(tmp_path: Path) -> None:
    done = proof(stand_in(tmp_path, "BY_WIDTH"))
    assert done.returncode == WRONG
    assert "5 rows at once give other bits" in str(last(done)["wrong"])


def test_a_crash_names_the_place(tmp_path: Path) -> None:
    done = proof(stand_in(tmp_path, "CRASHES"))
    assert done.returncode == -signal.SIGABRT
    assert last(done)["at"] == "F32, 1 columns of 33 with stand_in"


def test_an_instruction_set_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    done = proof(stand_in(tmp_path), "other")
    assert done.returncode == 1
    assert "no product of ggml type 0 with other" in done.stderr


def test_a_library_that_was_changed_is_not_opened(tmp_path: Path, libraries: Path) -> None:
    path = stand_in(tmp_path)
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(LocalspecError, match="not what was compiled here"):
        KernelLibrary(path, libraries)


def test_a_library_that_others_may_write_to_is_not_opened(tmp_path: Path, libraries: Path) -> None:
    path = stand_in(tmp_path)
    path.chmod(0o666)
    with pytest.raises(LocalspecError, match="others may write to"):
        KernelLibrary(path, libraries)


def test_a_library_with_another_interface_is_not_used(tmp_path: Path, libraries: Path) -> None:
    with pytest.raises(LocalspecError, match="is of another version"):
        KernelLibrary(stand_in(tmp_path, abi=2), libraries)


@pytest.fixture
def libraries() -> Path:
    """The folder of llama.cpp's libraries."""
    found = cxx.library_folder()
    assert found is not None
    return found


@pytest.fixture
def kernels(libraries: Path) -> KernelLibrary:
    """The library that scripts/localspec compiled."""
    known = build.stored()
    if known is None:
        pytest.skip("the kernels are not compiled here")
    return KernelLibrary(known.path, libraries)


@pytest.mark.slow
def test_every_instruction_set_of_this_processor_is_proved(kernels: KernelLibrary) -> None:
    assert kernels.units()
    for unit in kernels.units():
        for form in FORMATS.values():
            for case in prove.cases(form):
                assert prove.prove(kernels, unit, case) < prove.TOLERATED


class Broken:
    """Kernels with one defect each."""

    def __init__(self, kernels: KernelLibrary, defect: str) -> None:
        self._kernels, self._defect = kernels, defect

    def product(
        self, unit: str, ggml_type: int, weights: NDArray[np.uint8], x: Floats, m: int
    ) -> Floats:
        """See `KernelLibrary`."""
        weights, x = weights.copy(), x.copy()
        if self._defect == "a bit of a code":
            weights[-1] ^= 4
        if self._defect == "the last row of three":
            x[2::3] *= 1.01
        found = self._kernels.product(unit, ggml_type, weights, x, m)
        if self._defect == "the last column":
            found[:, -1] = 0
        if self._defect == "columns exchanged":
            found[:, :2] = found[:, 1::-1]
        if self._defect == "the last bit of wide products" and len(x) == 64:
            found.view(np.uint32)[-1, -1] ^= 1
        if self._defect == "no number" and len(x) > 1:
            found[0, 0] = np.nan if np.isnan(x).any() else found[0, 0]
        return found


@pytest.mark.parametrize("name", ["Q4_0", "Q4_K", "Q6_K", "MXFP4", "BF16"])
@pytest.mark.parametrize(
    "defect",
    [
        *("a bit of a code", "the last row of three", "the last column", "columns exchanged"),
        *("the last bit of wide products", "no number"),
    ],
)
def test_each_defect_is_found_in_each_format(
    kernels: KernelLibrary, name: str, defect: str
) -> None:
    broken: object = Broken(kernels, defect)

    def all_cases() -> None:
        for case in prove.cases(FORMATS[name]):
            prove.prove(broken, kernels.units()[0], case)  # type: ignore[arg-type]

    with pytest.raises(WrongProductError, match=name):
        all_cases()


def test_what_it_does_not_have_is_said(kernels: KernelLibrary) -> None:
    form = FORMATS["Q4_0"]
    case = Case(form, 32, 1, np.zeros(18, np.uint8), np.zeros((1, 32), np.float32))
    with pytest.raises(NoKernelError, match="with none"):
        kernels.product("none", 2, case.weights, case.rows, 1)
    assert not kernels.supports(9999)


def test_the_door_knows_the_library_of_this_environment(kernels: KernelLibrary) -> None:
    assert native.trusted(kernels.path) == kernels.path.resolve()
