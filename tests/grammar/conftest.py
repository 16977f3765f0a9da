from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from localspec.core.files.paths import DEMO_DIR
from localspec.core.grammar_spec import GrammarSpec
from localspec.grammar.compiling import compiled
from localspec.grammar.matching import GrammarMatcher
from localspec.grammar.thinking import Thinking
from localspec.llama.model import Model


@pytest.fixture(scope="session")
def model() -> Model:
    return Model(DEMO_DIR / "target.gguf")


@pytest.fixture(scope="session")
def vocabulary(model: Model) -> Any:
    return model.grammar_vocabulary()


@pytest.fixture(scope="session")
def matcher(model: Model, vocabulary: Any) -> Callable[..., GrammarMatcher]:
    """Makes a matcher of a spec for replies that begin at ``start``."""

    def make(spec: GrammarSpec, start: int = 0, thinking: Thinking | None = None) -> GrammarMatcher:
        return GrammarMatcher(
            vocabulary,
            compiled(spec),
            spec.kind,
            start=start,
            n_vocab=model.n_vocab,
            end_ids=model.end_ids,
            thinking=thinking,
        )

    return make
