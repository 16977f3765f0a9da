"""What the first start does before a model is loaded is shown on a terminal and goes away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from localspec.cli import opening, output
from localspec.core.events import Loading
from localspec.core.options import Options
from localspec.errors import ModelNotFoundError
from localspec.runtime import Runtime


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_done_once_is_named_while_it_lasts(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    shown: list[str] = []

    def open_(_options: Options, on_event: Callable[[Loading], None], *_: Any, **__: Any) -> str:
        on_event(Loading("compiling kernels, once", None))
        on_event(Loading("model.gguf", 0.5))
        if fails:
            raise ModelNotFoundError("no model")
        return "the runtime"

    monkeypatch.setattr(Runtime, "open", open_)
    monkeypatch.setattr(opening, "say_over", shown.append)
    if fails:
        with pytest.raises(ModelNotFoundError):
            opening.runtime(Options(), lambda: False)
    else:
        assert opening.runtime(Options(), lambda: False) == "the runtime"  # type: ignore[comparison-overlap]
    assert shown == ["compiling kernels, once", ""]


def test_a_pipe_gets_nothing_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    output.say_over("compiling kernels, once")
    assert capfd.readouterr().err == ""
