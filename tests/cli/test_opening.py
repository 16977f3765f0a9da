"""What a start says before a model is loaded, and that it goes away again on a terminal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from localspec.cli import output, working
from localspec.core.errors import ModelNotFoundError
from localspec.core.events import Loading
from localspec.core.options import Options
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
    monkeypatch.setattr(working, "say_over", shown.append)
    if fails:
        with pytest.raises(ModelNotFoundError):
            working.open_runtime(Options(), lambda: False)
    else:
        assert working.open_runtime(Options(), lambda: False) == "the runtime"  # type: ignore[comparison-overlap]
    assert shown == ["compiling kernels, once", ""]


def test_a_pipe_gets_nothing_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    output.say_over("compiling kernels, once")
    assert capfd.readouterr().err == ""


def test_on_windows_the_program_says_one_sentence_before_it_needs_what_windows_lacks() -> None:
    program = (
        "import sys; sys.platform = 'win32'\n"
        "for name in ('fcntl', 'grp', 'pty', 'pwd', 'resource', 'termios', 'tty'):\n"
        "    sys.modules[name] = None\n"
        "from localspec.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, "doctor"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert "inside WSL2" in done.stderr
