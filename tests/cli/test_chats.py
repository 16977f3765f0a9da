"""`localspec chats`: the chats that are kept, from the shell."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Files

from localspec import cli
from localspec.chats import schema
from localspec.chats.store import ChatStore
from localspec.chats.values import Chat, ChatMessage, model_at, new_message_id, started
from localspec.cli.chat import draft_of

ROOT = Path(__file__).parent.parent.parent


def put(title: str, *texts: str, **more: object) -> Chat:
    """A chat of one branch, in the person's file."""
    messages: list[ChatMessage] = []
    for number, text in enumerate(texts):
        parent = messages[-1].id if messages else None
        role = ("user", "assistant")[number % 2]
        messages.append(ChatMessage(new_message_id(parent), parent, role, text, time.time()))
    leaf = messages[-1].id if messages else None
    chat = Chat(replace(started(), title=title, leaf=leaf, **more), tuple(messages))
    with ChatStore() as store:
        store.put_chats([chat])
    return chat


def fails(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    """The exit code and the only line on stderr."""
    capsys.readouterr()
    code = cli.call(["chats", *argv])
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert code
    return code, line


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    capsys.readouterr()
    assert cli.call(["chats", *argv]) == 0
    return capsys.readouterr().out


def test_a_name_that_is_not_utf8_names_no_chat_and_is_in_no_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    put("On owls", "a", "b")
    odd = os.fsdecode(b"a\xff b")
    for argv in (["show"], ["export"], ["rm"], ["rename"]):
        line = fails(capsys, *argv, odd, *(["x"] if argv == ["rename"] else []))[1]
        assert line.startswith("localspec: no chat "), line
    assert fails(capsys, "restore", odd)[1].startswith("localspec: no removed chat ")
    assert cli.call(["chats", "search", odd]) == 1
    assert "bug" not in capsys.readouterr().err


def test_the_list_has_the_chat_used_last_first(capsys: pytest.CaptureFixture[str]) -> None:
    first = put("On owls", "a", "b", updated=1.0)
    second = put("On \x1b[31mfoxes", "a")
    lines = shown(capsys).splitlines()
    assert [line.split()[0] for line in lines] == [second.info.id, first.info.id]
    assert lines[1].endswith("2  On owls")
    assert "\x1b" not in lines[0]
    listed = json.loads(shown(capsys, "list", "--json"))
    assert [(x["id"], x["title"], x["messages"]) for x in listed] == [
        (second.info.id, "On \x1b[31mfoxes", 1),
        (first.info.id, "On owls", 2),
    ]


def test_the_list_without_its_name_takes_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    here, gone = put("here", "a"), put("gone", "a")
    shown(capsys, "rm", gone.info.id)
    assert [x["id"] for x in json.loads(shown(capsys, "--json"))] == [here.info.id]
    assert [x["id"] for x in json.loads(shown(capsys, "--json", "--removed"))] == [gone.info.id]
    assert shown(capsys, "--removed").split()[0] == gone.info.id
    code, line = fails(capsys, "--json", "show", here.info.id)
    assert code == 2
    assert "after the subcommand" in line


def test_a_chat_with_a_wild_time_is_listed_shown_and_not_imported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    chat = put("wild", "a", updated=9e18, created=9e18)
    assert "unknown date" in shown(capsys)
    assert "unknown date" in shown(capsys, "show", chat.info.id)
    file = tmp_path / "wild.json"
    file.write_text(shown(capsys, "export", chat.info.id), encoding="utf-8")
    code, line = fails(capsys, "import", str(file))
    assert code == 7
    assert "created is 9e+18" in line


def test_a_joined_emoji_stays_one_in_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    put("my \N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}\u202e", "a")
    line = shown(capsys)
    assert "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}\ufffd" in line


def test_no_chats_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys) == ""
    assert json.loads(shown(capsys, "list", "--json")) == []


def test_the_chat_that_was_removed_last_is_restored_by_that_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    newer, older = put("newer", "a"), put("older", "b")
    with ChatStore() as store:
        store.remove(newer.info.id)
        store.remove(older.info.id)
    assert cli.call(["chats"]) == 0
    assert "no chats; 2 chats can be restored: localspec chats --rem" in capsys.readouterr().err
    shown(capsys, "restore", "last")
    assert older.info.id in shown(capsys)
    shown(capsys, "restore", "last")
    assert newer.info.id in shown(capsys)
    assert "no removed chat" in fails(capsys, "restore", "last")[1]


def test_search_tells_the_chat_and_the_place(capsys: pytest.CaptureFixture[str]) -> None:
    chat = put("On owls", "why do owls hoot?", "To be heard.")
    assert shown(capsys, "search", "hoot owl") == (
        f"{chat.info.id}  On owls\n    user: why do owls hoot?\n"
    )
    (hit,) = json.loads(shown(capsys, "search", "heard", "--json"))
    assert (hit["chat"], hit["role"]) == (chat.info.id, "assistant")
    assert fails(capsys, "search", "zebra") == (1, "nothing found")
    assert fails(capsys, "search", "owls", "-n", "9" * 20)[0] == 2


def test_a_chat_is_shown_renamed_removed_and_restored(capsys: pytest.CaptureFixture[str]) -> None:
    chat = put("On owls", "why?", "Because.")
    assert "## Model\n\nBecause.\n" in shown(capsys, "show", "last")
    shown(capsys, "rename", chat.info.id[:4], " On  hooting ")
    assert "On hooting" in shown(capsys, "list")
    shown(capsys, "rm", chat.info.id)
    assert shown(capsys, "list") == ""
    assert "On hooting" in shown(capsys, "list", "--removed")
    assert "no chat" in fails(capsys, "show", chat.info.id)[1]
    shown(capsys, "restore", chat.info.id)
    assert "Because." in shown(capsys, "show")
    assert "--yes" in fails(capsys, "rm", "--for-good", chat.info.id)[1]
    shown(capsys, "rm", "--for-good", "--yes", chat.info.id)
    assert shown(capsys, "list", "--removed") == ""


def put_as(ids: Iterable[str]) -> None:
    """Chats with these ids, in the person's file."""
    with ChatStore() as store:
        for one in ids:
            message = ChatMessage(new_message_id(), None, "user", f"of {one}", time.time())
            info = replace(started(), id=one, title=f"of {one}", leaf=message.id)
            store.put_chats([Chat(info, (message,))])


@pytest.mark.parametrize("name", ["ab", "AB", "ab2"])
def test_a_beginning_of_several_ids_erases_no_chat_removed_ones_included(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    put_as(["ab11", "ab21", "ab22"])
    shown(capsys, "rm", "ab22")
    line = fails(capsys, "rm", "--for-good", "--yes", name)[1]
    assert line.startswith(f"localspec: several chats begin with {name!r}: ")
    assert "ab22" in line
    shown(capsys, "restore", "ab22")
    assert len(shown(capsys, "list").splitlines()) == 3


def test_each_chat_that_is_erased_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    put_as(["ab11", "ab22", "cd33"])
    shown(capsys, "rm", "ab22")
    assert cli.call(["chats", "rm", "--for-good", "--yes", "ab1", "ab11", "ab2"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "erased for good: ab11  of ab11",
        "erased for good: ab22  of ab22",
    ]
    assert shown(capsys, "list").split()[0] == "cd33"
    assert shown(capsys, "list", "--removed") == ""


def test_a_whole_id_is_never_ambiguous(capsys: pytest.CaptureFixture[str]) -> None:
    put_as(["ab", "ab22"])
    assert "of ab\n" in shown(capsys, "show", "AB")
    shown(capsys, "rm", "ab22")
    shown(capsys, "rm", "--for-good", "--yes", "ab")
    assert shown(capsys, "list") == ""
    assert shown(capsys, "list", "--removed").split()[0] == "ab22"


def test_an_export_can_be_imported_and_comes_out_the_same(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("On owls", "why?", "Because.", system="Be brief")
    put("On foxes", "ünï 🦊")
    text = shown(capsys, "export", "--all")
    file = tmp_path / "chats.json"
    shown(capsys, "export", "--all", "-o", str(file))
    assert file.read_text(encoding="utf-8") == text
    assert "there already" in fails(capsys, "export", "--all", "-o", str(file))[1]
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "another"))
    assert len(shown(capsys, "import", str(file)).splitlines()) == 2
    assert shown(capsys, "export", "--all") == text
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    shown(capsys, "import", "-")
    assert len(shown(capsys, "list").splitlines()) == 4
    assert shown(capsys, "export", "last", "--format", "markdown").startswith("# On ")


def test_what_cannot_be_meant_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "pass --all" in fails(capsys, "export")[1]
    assert "no chat yet" in fails(capsys, "show", "last")[1]
    assert "no chat 'zz'" in fails(capsys, "rename", "zz", "x")[1]
    assert "at least one letter" in fails(capsys, "rename", "zz", " ")[1]
    assert "cannot read" in fails(capsys, "import", str(tmp_path / "nothing"))[1]
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    code, line = fails(capsys, "import", str(bad))
    assert code == 7
    assert "bad.json" in line
    assert cli.call(["chat", "-c", "--resume", "x"]) == 2
    assert cli.call(["chat", "-c"]) == 1
    assert "no chat yet" in capsys.readouterr().err


def test_a_damaged_file_is_one_line_and_code_7(capsys: pytest.CaptureFixture[str]) -> None:
    path = schema.default_path()
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not at all a database" * 50)
    code, line = fails(capsys, "list")
    assert code == 7
    assert "damaged" in line


def test_a_failed_import_changes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    put("On owls", "why?", "Because.")
    data = json.loads(shown(capsys, "export", "--all"))
    data["chats"].append({**data["chats"][0], "leaf": 99})
    file = tmp_path / "chats.json"
    file.write_text(json.dumps(data))
    assert "leaf 99" in fails(capsys, "import", str(file))[1]
    assert len(shown(capsys, "list").splitlines()) == 1


def plain_chat(*argv: str, stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "localspec", "chat", *argv, "-n", "4", "-t", "0"],
        input=stdin,
        capture_output=True,
        cwd=ROOT,
        env=os.environ,
        timeout=100,
        check=False,
    )


def test_a_chat_is_resumed_line_by_line_and_goes_on(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = {"model": str(files.target), "draft": str(files.draft)}
    chat = put("On owls", "why?", "Because.", **pair)
    done = plain_chat("--resume", chat.info.id[:5], stdin=b"and then?\n")
    assert done.returncode == 0, done.stderr
    with ChatStore() as store:
        info, messages = store.load(chat.info.id).info, store.load(chat.info.id).messages
    assert {"model": info.model, "draft": info.draft} == pair
    assert [m.text for m in messages[:3]] == ["why?", "Because.", "and then?"]
    assert messages[3].parent == messages[2].id
    assert messages[3].end in ("stop", "length")
    assert messages[3].text + "\n" == done.stdout.decode()


def test_a_chat_of_a_server_that_is_gone_says_how_it_goes_on_here() -> None:
    put("On owls", "why?", "Because.", model=model_at("http://127.0.0.1:9", "demo"))
    done = plain_chat("-c", stdin=b"and then?\n")
    assert done.returncode == 1
    assert b"`localspec chat MODEL -c` continues this chat" in done.stderr


def test_an_imported_chat_asks_no_server_that_the_file_names(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    put("On owls", "why?", "Because.", model=model_at("http://127.0.0.1:9/v1", "m"))
    shown(capsys, "export", "--all", "-o", str(tmp_path / "chats.json"))
    with ChatStore() as store:
        store.erase(store.last().id)
    assert cli.call(["chats", "import", str(tmp_path / "chats.json")]) == 0
    assert "answered at http://127.0.0.1:9/v1" in capsys.readouterr().err
    with ChatStore() as store:
        assert store.last().model is None


def test_a_draft_that_is_gone_stops_no_chat(capsys: pytest.CaptureFixture[str]) -> None:
    held = started(model="demo", draft="/gone/draft.gguf")
    assert draft_of(Chat(held)) is None
    assert "continues without its draft" in capsys.readouterr().err
    assert draft_of(Chat(replace(held, draft="none"))) == "none"
    assert draft_of(Chat(replace(held, draft=None))) is None
    assert capsys.readouterr().err == ""


def test_what_a_pipe_asks_is_not_kept(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    assert plain_chat(str(files.target), stdin=b"hello\n").returncode == 0
    assert shown(capsys, "list") == ""


@pytest.mark.parametrize("name", ["x.html", "x.pdf", "x", "x.json.gz"])
def test_an_export_with_another_ending_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    put("On owls", "why?", "Because.")
    code, line = fails(capsys, "export", "--all", "-o", str(tmp_path / name))
    assert code == 2
    assert "Markdown (.md, .markdown, .txt) or JSON (.json)" in line
    assert not (tmp_path / name).exists()
    shown(capsys, "export", "--all", "-o", str(tmp_path / name), "--format", "json")
    assert json.loads((tmp_path / name).read_text("utf-8"))["chats"]


@pytest.mark.parametrize("name", ["x.md", "x.MD", "x.txt", "x.markdown"])
def test_the_ending_of_an_export_is_its_form(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    put("On owls", "why?", "Because.")
    shown(capsys, "export", "--all", "-o", str(tmp_path / name))
    assert (tmp_path / name).read_text("utf-8").startswith("# On owls")


def test_a_chat_that_is_erased_while_one_writes_in_it_ends_with_1(files: Files) -> None:
    chat = put("On owls", "why?", "Because.", model=str(files.target))
    line = [sys.executable, "-m", "localspec", "chat", "--resume", chat.info.id, "-n", "4"]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as talk:
        assert talk.stdin is not None
        assert talk.stdout is not None
        talk.stdin.write(b"and then?\n")
        talk.stdin.flush()
        assert talk.stdout.readline()
        with ChatStore() as store:
            store.erase(chat.info.id)
        _, told = talk.communicate(b"and now?\n", timeout=100)
    assert talk.returncode == 1
    assert b'of "On owls" not saved: it was erased elsewhere' in told
    with ChatStore() as store:
        assert store.listed() == []
