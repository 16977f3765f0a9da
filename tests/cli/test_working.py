"""What a terminal shows while a model is loaded."""

from __future__ import annotations

import math
from typing import Any

import pytest

from localspec.cli import working
from localspec.core.events import Loading
from localspec.core.interrupt import never
from localspec.core.options import Options
from localspec.runtime import Runtime


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that a terminal shows, one over the other."""
    lines: list[str] = []

    def load(_options: Options, on_event: Any, *_: object, **__: object) -> None:
        on_event(Loading("compiling kernels", None))
        for share in (0.4, 0.4, 0.404, 0.41):
            on_event(Loading("large.gguf", share))

    monkeypatch.setattr(working, "say_over", lines.append)
    monkeypatch.setattr(Runtime, "open", load)
    return lines


def test_a_model_that_takes_longer_than_a_moment_shows_how_much_of_it_is_loaded(
    shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "_MOMENT_S", 0.0)
    working.open_runtime(Options(), never)
    loading = [f"loading large.gguf {share}%" for share in (40, 41)]
    assert shown == ["compiling kernels", *loading, ""]


def test_a_model_that_is_loaded_in_a_moment_shows_nothing(
    shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "_MOMENT_S", math.inf)
    working.open_runtime(Options(), never)
    assert shown == ["compiling kernels", ""]


def test_the_plain_chat_draws_no_share_over_its_lines(
    shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "_MOMENT_S", 0.0)
    working.open_runtime(Options(), never, share=False)
    assert shown == ["compiling kernels", ""]
