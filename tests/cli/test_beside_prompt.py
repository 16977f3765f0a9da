"""A pipe beside a prompt is neither waited for nor left out in silence; a model's name is told."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from localspec.cli.beside_prompt import BesideThePrompt
from localspec.cli.output import is_unread


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[TextIO]:
    """The end that another program writes to, of a pipe that is stdin."""
    read, write = os.pipe()
    with os.fdopen(write, "w", encoding="utf-8") as writer, os.fdopen(read) as reader:
        monkeypatch.setattr(sys, "stdin", reader)
        yield writer


def test_a_pipe_that_brings_nothing_is_not_waited_for(
    pipe: TextIO, capsys: pytest.CaptureFixture[str]
) -> None:
    beside = BesideThePrompt(("Summarize",))
    beside.tell_of_stdin()
    pipe.close()
    beside.tell_of_stdin()
    assert beside.joined("Summarize") == "Summarize"
    assert capsys.readouterr().err == ""


def test_what_a_pipe_brings_beside_a_prompt_is_told_once_though_it_comes_late(
    pipe: TextIO, capsys: pytest.CaptureFixture[str]
) -> None:
    beside = BesideThePrompt(("Summarize",))
    beside.tell_of_stdin()
    pipe.write("a text")
    pipe.close()
    beside.tell_of_stdin()
    beside.tell_of_stdin()
    (line,) = capsys.readouterr().err.splitlines()
    assert "stdin is not read" in line
    assert sys.stdin.read() == "a text"


def test_a_dash_behind_a_prompt_puts_stdin_below_it(
    pipe: TextIO, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe.write("a text")
    pipe.close()
    beside = BesideThePrompt(("Summarize", "-"))
    assert beside.prompts == ("Summarize",)
    beside.tell_of_stdin()
    assert beside.joined("Summarize") == "Summarize\n\na text"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_stdin_that_is_the_prompt_is_nothing_to_tell(
    pipe: TextIO, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    pipe.write("a text")
    pipe.flush()
    BesideThePrompt(arguments).tell_of_stdin()
    assert capsys.readouterr().err == ""


def test_a_file_is_unread_up_to_its_end_and_the_null_device_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text("a text")
    with (tmp_path / "text").open() as file, Path(os.devnull).open() as null:
        monkeypatch.setattr(sys, "stdin", file)
        assert is_unread()
        file.seek(0, os.SEEK_END)
        assert not is_unread()
        monkeypatch.setattr(sys, "stdin", null)
        assert not is_unread()


@pytest.mark.parametrize(
    ("prompt", "told"), [("qwen3-4b", True), ("my model.gguf", True), ("Hello", False)]
)
def test_a_prompt_that_is_a_models_name_is_told(
    capsys: pytest.CaptureFixture[str], prompt: str, *, told: bool
) -> None:
    BesideThePrompt((prompt,)).tell_of_model()
    said = capsys.readouterr().err
    assert ("the name of a model" in said) == told
    assert (" -m " in said) == told
