"""Libraries of kernels that are right, or wrong in one way, compiled in a moment."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from localspec.core.files import native
from localspec.core.kernel import build as rows
from localspec.kernels.build import NAME

SOURCE = Path(__file__).parents[1] / "data" / "kernel_stand_in.c"


def stand_in(folder: Path, wrong: str = "RIGHT", abi: int = 1) -> Path:
    """Compile one and store it by the door to native code."""
    command = rows.compiler({})
    if command is None:
        pytest.skip("there is no C compiler")

    def compiled(fresh: Path) -> None:
        line = [*command, "-O1", "-ffp-contract=off", "-shared", "-fPIC"]
        line += [f"-DWRONG={wrong}", f"-DABI={abi}", "-o", str(fresh), str(SOURCE)]
        subprocess.run(line, check=True, capture_output=True)

    return native.store(folder / f"{wrong}-{abi}", NAME, compiled)
