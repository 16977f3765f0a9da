"""The proof of the kernels of one instruction set: their products, compared with numpy's.

``python -m localspec.kernels.prove LIBRARY LLAMA_CPP_LIBRARIES UNIT``, in a process of its own,
since wrong kernels may crash or hang. Prints a line of JSON before each step, so that its parent
knows where it ended; exit status 0 if all is right, 3 if a product is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.core.errors import LocalspecError
from localspec.kernels.formats import FORMATS, Format, Numbers
from localspec.kernels.library import Floats, KernelLibrary
from localspec.kernels.proof_report import WRONG, report

WIDTHS = (*range(1, 21), 33, 64, 200)
"""Rows of the products."""
SHAPES = ((1, 1), (3, 5), (1, 16), (5, 40), (2, 71))
"""Blocks of a column, odd ones among them, and columns."""
TOLERATED = 8.0
"""Deviations of the error that rounding causes. Of the 300,000 products of a proof, sound kernels
have none beyond 4.5."""
_EPSILON = 2.0**-24


class WrongProductError(Exception):
    """The kernels compute something else than numpy."""


@dataclass(frozen=True, slots=True)
class Case:
    """A matrix of weights in a format, and rows to multiply with it."""

    format: Format
    k: int
    m: int
    weights: NDArray[np.uint8]
    rows: Floats

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.format.name}, {self.m} columns of {self.k}"

    def expected(self) -> tuple[Numbers, Numbers]:
        """(n, m) products in float64, and the deviation that rounding gives each of them."""
        w = self.format.numbers(self.weights).reshape(self.m, self.k)
        x = self.rows.astype(np.float64)
        # Sums of float32 are off by half a unit of what is summed so far, a step at a time.
        variance = _EPSILON**2 * self.k * ((x * x) @ (w * w).T)
        if self.format.rounds:
            blocks = x.reshape(len(x), -1, 32)
            step = np.abs(blocks).max(axis=2) / 127
            squares = (w * w).reshape(self.m, -1, 32).sum(axis=2)
            variance += (step * step / 12) @ squares.T
            # Factors and minima are float32 too.
            variance += (8 * _EPSILON) ** 2 * ((x * x) @ (w * w).T)
            variance += (8 * _EPSILON) ** 2 * (np.abs(x) @ np.abs(w).T) ** 2
        return x @ w.T, np.sqrt(variance)


def cases(form: Format) -> Iterator[Case]:
    """Matrices of odd shapes; rows of all magnitudes, rows of zeros and of lone numbers."""
    rng = np.random.default_rng(form.ggml_type)
    for blocks, m in SHAPES:
        k = blocks * (form.block if form.block > 1 else 32) + (0 if form.rounds else blocks % 5)
        rows = rng.normal(0, 1, (max(WIDTHS), k)) * 10 ** rng.uniform(-3, 3, (max(WIDTHS), 1))
        rows[7::50] = 0
        rows[9::50] *= rng.random((len(rows[9::50]), k)) < 1 / 32
        weights = form.random(m * k, 1 / np.sqrt(k), rng)
        yield Case(form, k, m, weights, rows.astype(np.float32))


def prove(library: KernelLibrary, unit: str, case: Case) -> float:
    """Compare the products of all widths; the largest error, in deviations.

    Raises:
        WrongProductError: one of them is wrong, or not the same in every width.
    """

    def product(rows: Floats) -> Floats:
        return library.product(unit, case.format.ggml_type, case.weights, rows, case.m)

    expected, deviation = case.expected()
    single = np.concatenate([product(case.rows[i : i + 1]) for i in range(max(WIDTHS))])
    if not np.isfinite(single).all():
        raise WrongProductError(f"{case.name}: products that are not numbers")
    if single[~case.rows.any(axis=1)].any():
        raise WrongProductError(f"{case.name}: a row of zeros gives something")
    error = np.abs(single - expected) / np.maximum(deviation, np.finfo(np.float64).tiny)
    worst = float(error.max())
    if worst > TOLERATED:
        raise WrongProductError(
            f"{case.name}: a product is off by {worst:.3g} times what rounding explains, "
            f"{TOLERATED:g} are tolerated"
        )
    for n in WIDTHS:
        if not np.array_equal(product(case.rows[:n]).view(np.uint32), single[:n].view(np.uint32)):
            raise WrongProductError(
                f"{case.name}: {n} rows at once give other bits than one after the other"
            )
    lost = case.rows[:3].copy()
    lost[1, 0] = np.nan
    found = product(lost)
    if not np.isnan(found[1]).all() or not np.array_equal(found[::2], single[0:3:2]):
        raise WrongProductError(f"{case.name}: what is no number is not kept in its row")
    return worst


def main(arguments: list[str]) -> int:
    """Prove every format that the library has."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is an answer here
    path, libraries, unit = arguments
    report(at="opening the kernels")
    worst = 0.0
    try:
        library = KernelLibrary(Path(path), Path(libraries))
        for form in FORMATS.values():
            if not library.supports(form.ggml_type):
                continue
            for case in cases(form):
                report(at=f"{case.name} with {unit}")
                worst = max(worst, prove(library, unit, case))
    except WrongProductError as error:
        report(wrong=str(error))
        return WRONG
    except LocalspecError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    report(worst=worst)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
