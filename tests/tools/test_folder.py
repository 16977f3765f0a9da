"""Reading below one folder: what is found, and that nothing outside of it is."""

import pytest

from localspec.core.errors import LocalspecError, ToolError
from localspec.core.processes.bounded import BoundedProcess
from localspec.tools.folder import Folder
from localspec.tools.toolbox import Toolbox


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "open"
    (place / "sub").mkdir(parents=True)
    (place / "a.md").write_text("# Title\nThe meeting is on Friday.\n")
    (place / "sub" / "b.txt").write_text("\n".join(f"line {n}" for n in range(1, 1001)))
    (place / "picture.bin").write_bytes(b"\0\1friday\0")
    (tmp_path / "secret.txt").write_text("friday is secret")
    (place / "link.txt").symlink_to(tmp_path / "secret.txt")
    (place / "up").symlink_to(tmp_path)
    return Folder(place)


def test_files_are_listed_and_read(folder):
    listed = folder.call("list_files", {"path": "."})
    assert "sub/" in listed
    assert "a.md\t" in listed
    assert "Friday" in folder.call("read_file", {"path": "a.md"})


def test_a_long_file_is_read_in_parts(folder):
    first = folder.call("read_file", {"path": "sub/b.txt"})
    assert first.startswith("line 1\n")
    assert "from first_line 401 on" in first
    assert (
        folder.call("read_file", {"path": "sub/b.txt", "first_line": 999}) == "line 999\nline 1000"
    )


def test_a_search_finds_lines_without_case_and_follows_no_link(folder):
    assert folder.call("search_files", {"text": "FRIDAY"}) == "a.md:2: The meeting is on Friday."
    assert "no line contains" in folder.call("search_files", {"text": "Saturday"})


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "link.txt",
        "up/secret.txt",
        "/etc/passwd",
        "sub/../../secret.txt",
        "~",
        "\0",
    ],
)
@pytest.mark.parametrize("tool", ["read_file", "list_files"])
def test_nothing_outside_of_the_folder_is_read(folder, tool, path):
    with pytest.raises(ToolError):
        folder.call(tool, {"path": path})


@pytest.mark.parametrize("line", ["two", [2], float("inf")])
def test_arguments_that_no_grammar_made_are_an_error_that_the_model_reads(folder, line):
    with pytest.raises(ToolError):
        folder.call("read_file", {"path": "a.md", "first_line": line})


def test_bytes_are_not_read_as_text(folder):
    (folder.path / "bytes").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(ToolError, match="is not text"):
        folder.call("read_file", {"path": "bytes"})


async def test_a_document_that_no_process_can_be_started_for_is_an_error_that_the_model_reads(
    folder, monkeypatch
):
    (folder.path / "a.pdf").write_bytes(b"%PDF-1.4")

    def ask(*_):
        raise LocalspecError("cannot start the process that reads documents: no memory")

    monkeypatch.setattr(BoundedProcess, "ask", ask)
    read = next(tool for tool in folder.tools if tool.tool == "read_file")
    result = await Toolbox(folder=folder).call(read, {"path": "a.pdf"})
    assert result.failed
    assert "Error: cannot start the process that reads documents" in result.text


def test_a_folder_that_is_not_there_cannot_be_opened(tmp_path):
    with pytest.raises(ToolError, match="cannot read the folder"):
        Folder(tmp_path / "nothing")
