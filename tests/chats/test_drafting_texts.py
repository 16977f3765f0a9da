"""Drafting from earlier chats: theirs alone, in their order, within bounds, and only if asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Files

from localspec import Options, Runtime, Sampling
from localspec.chats.drafting_texts import earlier_texts
from localspec.chats.store import ChatStore
from localspec.chats.values import Chat, ChatMessage, new_message_id, started
from localspec.core.events import Finished, Message, Reply
from localspec.core.files import paths

TEXT = "the owl sleeps by day and hunts by night"


def chat(*texts: str) -> Chat:
    messages: list[ChatMessage] = []
    for i, text in enumerate(texts):
        parent = messages[-1].id if messages else None
        role = "assistant" if i % 2 else "user"
        messages.append(ChatMessage(new_message_id(parent), parent, role, text, 1.0 + i))
    return Chat(started(), tuple(messages))


def kept(path: Path, *chats: Chat) -> Path:
    with ChatStore(path) as store:
        for one in chats:
            store.put_chats([one])
    return path


def test_where_no_chat_was_ever_saved_no_file_is_made(tmp_path: Path) -> None:
    assert earlier_texts(tmp_path / "chats.db") == ()
    assert not (tmp_path / "chats.db").exists()


def test_every_chat_is_a_text_of_its_own(tmp_path: Path) -> None:
    path = kept(tmp_path / "chats.db", chat("one", "two"), chat("three"))
    assert sorted(earlier_texts(path)) == ["one\n\ntwo", "three"]


def test_the_newest_chats_fill_the_room_there_is(tmp_path: Path) -> None:
    path = kept(tmp_path / "chats.db", *(chat("x" * 50) for _ in range(20)))
    found = earlier_texts(path, most=120)
    assert [len(text) for text in found] == [50, 50, 20]


def test_a_removed_chat_is_not_drafted_from(tmp_path: Path) -> None:
    one = chat("one")
    path = kept(tmp_path / "chats.db", one, chat("two"))
    with ChatStore(path) as store:
        store.remove(one.info.id)
    assert earlier_texts(path) == ("two",)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return paths.make(paths.data_dir()) / "chats.db"


def reply(files: Files, *, remember: bool) -> tuple[Reply, tuple[str, ...]]:
    chosen = Options(
        model=str(files.target), draft="none", drafter=("suffix",), draft_max=4, remember=remember
    )
    with Runtime.open(chosen) as runtime:
        for event in runtime.reply(
            [Message("user", "the owl sl")], sampling=Sampling(temperature=0), max_tokens=8
        ):
            if isinstance(event, Finished):
                return event.reply, runtime.info.notices
    raise AssertionError("a reply ends with Finished")


def test_the_reply_is_the_same_with_and_without_earlier_chats(files: Files, home: Path) -> None:
    kept(home, chat(TEXT, TEXT))
    assert reply(files, remember=True)[0].tokens == reply(files, remember=False)[0].tokens


def test_a_damaged_file_of_chats_is_said_and_done_without(files: Files, home: Path) -> None:
    home.write_bytes(b"no database at all" * 100)
    answer, notices = reply(files, remember=True)
    assert answer.tokens
    assert any("drafting without earlier chats" in notice for notice in notices)
    assert not any("earlier chats" in notice for notice in reply(files, remember=False)[1])
