"""Model files for tests of what fits."""

from __future__ import annotations

from pathlib import Path

import gguf_shapes
import pytest
from fit_machines import OTHER
from gguf_shapes import LARGE, MEDIUM, SMALL


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("shapes")
    named = {"small": SMALL, "medium": MEDIUM, "large": LARGE, "other": OTHER}
    return {k: gguf_shapes.write_shape(folder / f"{k}.gguf", s) for k, s in named.items()}
