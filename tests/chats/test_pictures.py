"""Pictures of chats: kept once, found by the texts that show them, erased with the last of them."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.chats import pictures, transfer
from localspec.chats.store import ChatStore
from localspec.chats.values import Chat, ChatMessage, new_message_id, started, title_of
from localspec.core.errors import ChatsError, ChatsFileError
from localspec.core.files import checked, paths

CAT, DOG = b"a cat", b"a dog"


def folder() -> Path:
    return paths.data_dir() / "pictures"


def kept() -> set[bytes]:
    return {path.read_bytes() for path in folder().iterdir()} if folder().is_dir() else set()


def chat(*texts: str) -> Chat:
    messages = []
    parent = None
    for text in texts:
        messages.append(ChatMessage(new_message_id(parent), parent, "user", text, 1.0))
        parent = messages[-1].id
    return Chat(dataclasses.replace(started(), leaf=parent), tuple(messages))


def test_a_picture_is_kept_once_and_for_its_owner_alone() -> None:
    one, other = pictures.keep(CAT, "cat.png"), pictures.keep(CAT, "again [cat].png")
    (path,) = folder().iterdir()
    assert path.read_bytes() == CAT
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert one.startswith("![cat.png](picture:")
    assert other.startswith("![again cat .png](picture:")
    (found,) = pictures.references(f"see {other}!")
    assert (found.digest, found.start) == (path.name, 4)


def test_a_text_becomes_a_message_with_its_pictures() -> None:
    text = f"{pictures.keep(CAT, 'cat.png')}\nand {pictures.keep(DOG, 'dog.png')}?"
    made = pictures.message("user", text)
    assert made.content == "\nand ?"
    assert [(p.at, p.name) for p in made.pictures] == [(0, "cat.png"), (5, "dog.png")]
    assert Path(made.pictures[1].path).read_bytes() == DOG
    assert pictures.message("assistant", text).pictures == ()
    assert pictures.shown(text) == "[picture: cat.png]\nand [picture: dog.png]?"
    assert pictures.shown(pictures.keep(b"meow", "cat.mp3")) == "[sound: cat.mp3]"


def test_a_picture_that_has_gone_leaves_its_name() -> None:
    text = f"{pictures.keep(CAT, 'cat.png')}\nWhat?"
    with ChatStore() as store:
        store.put_chats([chat(text)])
    next(folder().iterdir()).unlink()
    made = pictures.message("user", text)
    assert made.pictures == ()
    assert made.content == "[cat.png: not there any more]\nWhat?"


def test_a_title_is_made_of_the_question() -> None:
    reference = pictures.keep(CAT, "cat.png")
    assert title_of(pictures.named(f"{reference}\nWhat is it?")) == "What is it?"
    assert title_of(pictures.named(reference)) == "[picture: cat.png]"


def test_erasing_a_chat_erases_its_pictures_but_those_of_others() -> None:
    cat, dog = pictures.keep(CAT, "cat.png"), pictures.keep(DOG, "dog.png")
    first, second = chat(f"{cat}\nand {dog}"), chat(f"{dog}\nagain")
    with ChatStore() as store:
        store.put_chats([first, second])
        store.erase(first.info.id)
        assert kept() == {DOG}
        store.erase(second.info.id)
        assert kept() == set()


def in_another_process(code: str) -> None:
    begin = "from localspec.chats.store import ChatStore; store = ChatStore();"
    subprocess.run([sys.executable, "-c", begin + code], check=True)


def test_a_picture_of_a_message_that_waits_outlives_the_last_chat_that_shows_it() -> None:
    shown = chat(f"{pictures.keep(CAT, 'cat.png')}\nWhat?")
    with ChatStore() as store:
        store.put_chats([shown])
        queued = f"{pictures.keep(CAT, 'cat.png')}\nAnd what is this?"
        in_another_process(f"store.erase({shown.info.id!r})")
        assert kept() == set()
        assert pictures.message("user", queued).pictures  # it is sent
        in_another_process("store.erase('none')")
        assert kept() == {CAT}
        next(folder().iterdir()).unlink()  # as by one that had looked before it was sent
        sent = chat(queued)
        store.put_chats([sent])
        assert kept() == {CAT}
        in_another_process(f"store.erase({sent.info.id!r})")
        assert kept() == set()
        assert not pictures.message("user", queued).pictures  # and it does not come back


def test_a_picture_that_was_never_sent_goes_with_the_next_chat_after_a_day() -> None:
    pictures.keep(CAT, "cat.png")
    pictures.keep(DOG, "dog.png")
    old = next(path for path in folder().iterdir() if path.read_bytes() == DOG)
    os.utime(old, (1.0, 1.0))
    with ChatStore() as store:
        other = chat("No picture.")
        store.put_chats([other])
        store.erase(other.info.id)
    assert kept() == {CAT}


def test_a_picture_of_a_message_that_waits_outlives_its_disk() -> None:
    text = f"{pictures.keep(CAT, 'cat.png')}\nWhat?"
    shutil.rmtree(paths.data_dir())
    paths.data_dir().write_text("the disk is gone")
    (found,) = pictures.message("user", text).pictures
    assert (found.data, found.name, found.at) == (CAT, "cat.png", 0)
    assert pictures.of_texts([text]) == {}


def test_a_picture_that_cannot_be_read_is_named_by_who_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = f"{pictures.keep(CAT, 'cat.png')}\nWhat?"
    with ChatStore() as store:
        store.put_chats([chat(text)])

    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "stat", broken)
    monkeypatch.setattr(checked, "opened", broken)
    assert pictures.message("user", text).pictures[0].path  # reading it is an error with its name
    with pytest.raises(ChatsError, match=r"cat\.png cannot be read: Input/output error"):
        pictures.of_texts([text])


def test_an_export_brings_its_pictures_along() -> None:
    text = transfer.to_json([chat(f"{pictures.keep(CAT, 'cat.png')}\nWhat?")])
    next(folder().iterdir()).unlink()
    (found,) = transfer.from_json(text)
    assert kept() == {CAT}
    assert pictures.message("user", found.messages[0].text).pictures
    assert '"pictures"' not in transfer.to_json([chat("No picture.")])


def test_an_export_cannot_bring_another_file_for_a_digest() -> None:
    text = transfer.to_json([chat(f"{pictures.keep(CAT, 'cat.png')}\nWhat?")])
    next(folder().iterdir()).unlink()
    transfer.from_json(text.replace("YSBjYXQ=", "YSBkb2c="))
    assert kept() <= {DOG}
    assert not any(path.name in text for path in folder().iterdir())
    with pytest.raises(ChatsFileError, match="no base64"):
        transfer.from_json(text.replace("YSBjYXQ=", "?"))


def test_a_folder_that_others_may_write_to_keeps_no_picture() -> None:
    paths.make(folder()).chmod(0o777)
    with pytest.raises(ChatsError, match=r"cat\.png cannot be kept: others may write to .*chmod"):
        pictures.keep(CAT, "cat.png")
    assert kept() == set()


def test_chats_in_a_folder_that_others_may_write_to_are_not_opened() -> None:
    paths.make(paths.data_dir()).chmod(0o777)
    with pytest.raises(ChatsError, match=r"others may write to .*chmod"):
        ChatStore()
