"""The shell scripts in scripts/ that prepare the environment and then run a Python program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "scripts"
BENCHES = FOLDER / "benches"
PROGRAMS = sorted({path.stem for path in BENCHES.glob("*.py")} - {"__init__", "run"})
WRAPPERS = sorted(
    path
    for path in FOLDER.iterdir()
    if path.is_file() and not (path.is_symlink() or path.suffix)
    if "\nprepare " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("wrapper", WRAPPERS, ids=lambda path: path.name)
def test_a_wrapper_starts_itself_again_when_the_environment_is_ready(wrapper: Path) -> None:
    (line,) = re.findall(r"^prepare (.*)$", wrapper.read_text(encoding="utf-8"), re.MULTILINE)
    name = r"\$name" if wrapper.name == "tool" else wrapper.name
    assert re.match(rf'(dev|runtime) "\$root/scripts/{name}" ', line)
    assert line.endswith('"$@"')


@pytest.mark.parametrize("wrapper", WRAPPERS, ids=lambda path: path.name)
def test_a_wrapper_is_executable_and_its_program_exists(wrapper: Path) -> None:
    assert os.access(wrapper, os.X_OK)
    programs = re.findall(r'"\$root/([\w/]+\.py)"', wrapper.read_text(encoding="utf-8"))
    assert programs or wrapper.name in {"localspec", "test", "tool"}
    for name in programs:
        assert (FOLDER.parent / name).is_file()


TOOLS = sorted(path for path in FOLDER.iterdir() if path.is_symlink())
TOOLS = [path for path in TOOLS if path.readlink() == Path("tool")]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda path: path.name)
def test_a_tool_says_what_it_takes(tool: Path) -> None:
    done = subprocess.run([tool, "-h"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout


def test_the_tools_are_listed_by_the_file_that_runs_them() -> None:
    done = subprocess.run([FOLDER / "tool"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    named = re.findall(r"scripts/(\w+)", done.stdout)
    assert sorted(named) == [tool.name for tool in TOOLS]


TRAININGS = sorted(FOLDER.glob("train_*"))


@pytest.mark.parametrize("training", TRAININGS, ids=lambda path: path.name)
def test_a_training_lists_its_stages_without_the_packages_that_it_needs(training: Path) -> None:
    assert training.readlink() == Path("train")
    done = subprocess.run([training, "-h"], capture_output=True, text=True, check=True)
    assert "--seed" in done.stdout


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(BENCHES / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_runner_lists_every_program_with_what_it_measures() -> None:
    listed = [line for line in run().stdout.splitlines() if line.startswith("  ")]
    assert sorted(line.split()[0] for line in listed) == PROGRAMS
    assert all(len(line.split()) > 4 for line in listed)


def test_every_name_of_a_bench_by_itself_is_a_program() -> None:
    names = {path.name for path in FOLDER.glob("bench_*")}
    assert names > {"bench_kernels", "bench_gain"}
    assert {(FOLDER / name).readlink() for name in names} == {Path("bench")}
    assert {name.removeprefix("bench_") for name in names} < {*PROGRAMS}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_starts_by_its_name(name: str) -> None:
    done = run(name, "-h")
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout


def test_a_bench_that_does_not_exist_is_named() -> None:
    done = run("nothing")
    assert done.returncode == 2
    assert "there is no 'nothing'" in done.stderr
