"""The shell scripts in scripts/ that prepare the environment and then run a Python program."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "scripts"
WRAPPERS = sorted(
    path
    for path in FOLDER.iterdir()
    if path.is_file() and not path.suffix and "\nprepare " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("wrapper", WRAPPERS, ids=lambda path: path.name)
def test_a_wrapper_starts_itself_again_when_the_environment_is_ready(wrapper: Path) -> None:
    (line,) = re.findall(r"^prepare (.*)$", wrapper.read_text(encoding="utf-8"), re.MULTILINE)
    assert re.match(rf'(dev|runtime) "\$root/scripts/{wrapper.name}" ', line)
    assert line.endswith('"$@"')


@pytest.mark.parametrize("wrapper", WRAPPERS, ids=lambda path: path.name)
def test_a_wrapper_is_executable_and_its_program_exists(wrapper: Path) -> None:
    assert os.access(wrapper, os.X_OK)
    programs = re.findall(r'"\$root/([\w/]+\.py)"', wrapper.read_text(encoding="utf-8"))
    assert programs or wrapper.name in {"localspec", "test"}
    for name in programs:
        assert (FOLDER.parent / name).is_file()
