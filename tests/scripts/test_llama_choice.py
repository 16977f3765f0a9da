"""A GPU that needs Vulkan is offered once, where somebody can answer."""

import re
import sys
from dataclasses import replace

import llama_backend
import llama_choice
import pytest
from bootstrap_steps import Failure
from llama_backend import Machine

LINUX = Machine("Linux", "x86_64", "Some CPU avx2", nvcc=None, cuda_version="", gpus="")
WITH_AMD = replace(LINUX, other_gpus=("AMD",))
WITH_NVIDIA = replace(LINUX, gpus="RTX 4060 Laptop, 8.9")


@pytest.fixture
def asked(monkeypatch):
    """A terminal with a user whose answers are listed, and who was asked these questions.

    No piece of compiling is timed before: the compiler fails at once.
    """
    questions = []
    monkeypatch.setenv("CXX", "false")

    def prepare(*answers, terminal=True, vulkan=True):
        left = list(answers)
        monkeypatch.setattr("builtins.input", lambda text: questions.append(text) or left.pop(0))
        for stream in (sys.stdin, sys.stderr):
            monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)

        def require(environ):
            if not vulkan:
                raise Failure("there is no glslc")

        monkeypatch.setattr(llama_backend, "require_vulkan", require)
        return questions

    return prepare


@pytest.mark.parametrize("machine", [WITH_AMD, WITH_NVIDIA], ids=["AMD", "NVIDIA without nvcc"])
@pytest.mark.parametrize(
    ("answer", "backend"), [("", "vulkan"), ("y", "vulkan"), ("n", "cpu"), ("what", "cpu")]
)
def test_the_answer_decides_and_is_remembered(asked, tmp_path, machine, answer, backend):
    questions = asked(answer)
    assert llama_choice.backend_for(machine, {}, tmp_path / "cache") == backend
    assert llama_choice.backend_for(machine, {}, tmp_path / "cache") == backend
    assert len(questions) == 1


def test_a_requested_backend_is_used_without_a_question(asked, tmp_path):
    questions = asked("y")
    (tmp_path / llama_choice.FILE).write_text("vulkan\n")
    environ = {"LOCALSPEC_BACKEND": "cpu"}
    assert llama_choice.backend_for(WITH_AMD, environ, tmp_path) == "cpu"
    assert not questions


@pytest.mark.parametrize("lack", ["terminal", "vulkan"])
def test_where_nobody_can_answer_or_use_it_the_question_waits(asked, tmp_path, lack):
    questions = asked("y", **{lack: False})
    assert llama_choice.backend_for(WITH_AMD, {}, tmp_path) == "cpu"
    assert not questions
    asked("y")
    assert llama_choice.backend_for(WITH_AMD, {}, tmp_path) == "vulkan"


def test_without_an_idle_gpu_nothing_is_asked(asked, tmp_path):
    questions = asked("y")
    assert llama_choice.backend_for(LINUX, {}, tmp_path) == "cpu"
    assert not questions


def test_a_damaged_answer_is_asked_for_again(asked, tmp_path):
    questions = asked("n")
    (tmp_path / llama_choice.FILE).write_bytes(b"\xff\xfe")
    assert llama_choice.backend_for(WITH_AMD, {}, tmp_path) == "cpu"
    assert len(questions) == 1


@pytest.mark.slow
def test_the_time_of_the_build_is_said_before_the_question(asked, tmp_path, monkeypatch, capsys):
    asked("n")
    monkeypatch.delenv("CXX")  # a piece of compiling is timed
    assert llama_choice.backend_for(WITH_AMD, {}, tmp_path) == "cpu"
    said = capsys.readouterr().err
    assert re.search(r"GPU of AMD can be used .* built for it, in .*\d+ (s|min)\b", said), said
