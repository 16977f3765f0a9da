"""A model for tests of prompts."""

from __future__ import annotations

from collections.abc import Iterator

import gguf_tools
import pytest

from localspec.llama.model import Model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """Random weights, and the vocabulary of bytes."""
    found = Model(gguf_tools.write_llama(tmp_path_factory.mktemp("prompts") / "model.gguf"))
    yield found
    found.close()
