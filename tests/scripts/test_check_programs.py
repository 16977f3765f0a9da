"""Programs of others are tried in an environment of their own, and what fails is said."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import check_programs
import pytest
import scripted_server
from check_programs import PROGRAMS, Installed, Program

from localspec.core.events import Message, MessageCall

ASKED = Message("user", "Replace one by two in notes.txt")
CALL = MessageCall("c", "Read", "{}")
TURN = (Message("assistant", "", calls=(CALL,)), Message("tool", "one", call_id="c"))


def tool(name: str, **properties: str) -> dict[str, object]:
    typed = {key: {"type": kind} for key, kind in properties.items()}
    parameters = {"type": "object", "properties": typed, "required": [*properties]}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


CLAUDE = json.dumps(
    [
        tool("Bash", command="string"),
        tool("Edit", file_path="string", old_string="string", new_string="string"),
        tool("Read", file_path="string"),
    ]
)


def called(text: str) -> dict[str, object]:
    call = json.loads(text.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))
    assert isinstance(call, dict)
    return call


def test_the_script_reads_a_file_edits_it_and_ends(tmp_path: Path) -> None:
    path = str(tmp_path / "notes.txt")
    first = called(scripted_server.says(CLAUDE, (ASKED,), tmp_path))
    assert first == {"name": "Read", "arguments": {"file_path": path}}
    second = called(scripted_server.says(CLAUDE, (ASKED, *TURN), tmp_path))
    edit = {"file_path": path, "old_string": "one", "new_string": "two"}
    assert second == {"name": "Edit", "arguments": edit}
    assert scripted_server.says(CLAUDE, (ASKED, *TURN, *TURN), tmp_path) == "Done."


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("string", "sed -i s/one/two/ notes.txt"),
        ("array", ["sh", "-c", "sed -i s/one/two/ notes.txt"]),
    ],
)
def test_an_agent_with_a_shell_alone_gets_a_command(
    tmp_path: Path, kind: str, command: object
) -> None:
    tools = json.dumps([tool("shell", command=kind)])
    found = called(scripted_server.says(tools, (ASKED,), tmp_path))
    assert found == {"name": "shell", "arguments": {"command": command}}


def test_names_differ_and_every_program_has_one_task() -> None:
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS)
    assert all(bool(program.code) != bool(program.command) for program in PROGRAMS)


def installed(folder: Path, code: str, *, edits: bool = False) -> Installed:
    """A program that needs no package."""
    (folder / "it" / "bin").mkdir(parents=True)
    (folder / "it" / "bin" / "python").symlink_to(sys.executable)
    (folder / "it" / "installed").touch()
    return Installed(Program("it", ("pip",), "a task", code, edits=edits), folder)


def test_a_task_that_fails_is_told_by_its_last_line(tmp_path: Path) -> None:
    one = installed(tmp_path, "import os; raise SystemExit('no answer at ' + os.environ['URL'])")
    problem = one.task("http://127.0.0.1:1", one.workplace())
    assert problem == "exit code 1: no answer at http://127.0.0.1:1"
    row = check_programs.Tried(one.program, "1.0", problem).row()
    assert row == f"| it | 1.0 | a task | failed: {problem} |"


def test_a_program_that_ends_well_and_leaves_the_file_has_failed(tmp_path: Path) -> None:
    lazy = installed(tmp_path / "lazy", "print('edited')", edits=True)
    assert lazy.task("", lazy.workplace()) == "the file is unchanged: edited"
    busy = installed(tmp_path / "busy", "open('notes.txt', 'w').write('two')", edits=True)
    assert busy.task("", busy.workplace()) == ""


def test_a_task_sees_nothing_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    code = (
        "import os; assert 'OPENAI_API_KEY' not in os.environ;"
        "assert os.environ['HOME'] == os.getcwd()"
    )
    one = installed(tmp_path, code)
    assert one.task("", one.workplace()) == ""


def test_a_name_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["check_programs", "emacs"])
    with pytest.raises(SystemExit, match="2"):
        check_programs.main()
    assert "no such program: emacs" in capsys.readouterr().err
