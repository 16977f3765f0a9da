"""Saving behind a running chat: nothing waits for the disk, and nothing is lost quietly."""

import contextlib
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import until

from localspec.chats import saver as saver_module
from localspec.chats import schema
from localspec.chats.saver import Saver
from localspec.chats.store import ChatStore
from localspec.chats.values import ChatMessage, new_message_id, started
from localspec.core.errors import ChatsError, ChatsFileError

ROOT = Path(__file__).parents[2]


def said(text, parent=None, role="user"):
    return ChatMessage(new_message_id(parent), parent, role, text, time.time())


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(schema, "BUSY_SECONDS", 60)  # whoever looks on waits for a slow disk
    monkeypatch.setattr(saver_module, "_RETRY", 0.02)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "chats.db"


@pytest.fixture
def lines():
    return []


@pytest.fixture
def saver(path, lines):
    saver = Saver(path, lines.append, interval=0.01)
    yield saver
    saver.close()


def stored(path, info):
    with ChatStore(path) as store:
        return [m.text for m in store.load(info.id).messages]


def known(path, info):
    """Whether the chat is in the file, which is there a moment before."""
    with ChatStore(path) as store:
        return info.id in [listed.info.id for listed in store.listed()]


def test_what_was_saved_is_there_after_the_close(saver, path):
    info, question = started(), said("hello")
    saver.save(info, question)
    saver.save(info, replace(question, text="hello!"), said("hi", question.id, "assistant"))
    assert saver.close() == ()
    assert stored(path, info) == ["hello!", "hi"]


def test_a_reply_is_saved_while_it_grows(saver, path):
    info, question = started(), said("hello")
    reply = said("", question.id, "assistant")
    saver.save(info, question, reply)
    grown = reply

    def growing():
        return info.id, grown

    saver.follow(reply.id, growing)
    until(lambda: path.exists() and known(path, info))
    for text in ("one", "one two"):
        grown = replace(reply, text=text)
        until(lambda text=text: stored(path, info)[-1] == text)
    saver.unfollow(reply.id)
    saver.save(info, replace(reply, text="one two three", end="stop"))
    saver.close()
    assert stored(path, info)[-1] == "one two three"


def test_a_locked_file_is_told_once_and_saved_later(saver, path, lines, monkeypatch):
    ChatStore(path).close()
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.02)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    info = started()
    saver.save(info, said("one"))
    until(lambda: lines)
    saver.save(info, said("two"))
    time.sleep(0.1)
    assert len(lines) == 1
    assert "not being saved" in lines[0]
    assert "locked" in lines[0]
    assert "locked" in saver.failing
    other.execute("ROLLBACK")
    other.close()
    until(lambda: len(lines) > 1)
    assert lines[1:] == ["the chat is saved again"]
    assert saver.failing is None
    assert stored(path, info) == ["one", "two"]


def test_a_damaged_file_that_is_moved_away_makes_place_for_the_whole_chat(saver, path, lines):
    info, question = started(), said("one")
    saver.save(info, question)
    saver.call(ChatStore.listed).result(60)
    for file in path.parent.iterdir():
        file.write_bytes(b"no database at all" * 400)
    saver.save(info, said("two", question.id, "assistant"))
    until(lambda: lines)
    assert "move the file away" in lines[0]
    for file in path.parent.iterdir():
        file.unlink(missing_ok=True)
    until(lambda: len(lines) > 1)
    assert stored(path, info) == ["one", "two"]


def test_what_could_not_be_saved_at_the_end_is_said(path, lines):
    path.parent.mkdir()
    path.write_bytes(b"no database at all" * 100)
    saver = Saver(path, lines.append, interval=0.01)
    saver.save(started(), said("one"))
    until(lambda: lines)
    assert "damaged" in saver.close()[0]


def test_questions_to_the_store_see_what_was_saved_before(saver):
    info = started()
    saver.save(info, said("a needle"))
    assert [h.info.id for h in saver.call(lambda s: s.search("needle")).result(60)] == [info.id]
    with pytest.raises(ChatsError, match="no chat"):
        saver.call(lambda s: s.load("nothing")).result(60)
    assert len(saver.call(ChatStore.listed).result(60)) == 1
    saver.close()
    with pytest.raises(ChatsError, match="closed"):
        saver.call(ChatStore.listed).result(60)


def test_a_question_to_a_damaged_file_fails_and_the_saver_lives(path):
    path.parent.mkdir()
    path.write_bytes(b"no database at all" * 100)
    saver = Saver(path, interval=0.01)
    for _ in range(2):
        with pytest.raises(ChatsFileError):
            saver.call(ChatStore.listed).result(60)
    path.unlink()
    assert saver.call(ChatStore.listed).result(60) == []
    assert saver.close() == ()


def test_saving_never_waits(path, monkeypatch):
    monkeypatch.setattr(schema, "BUSY_SECONDS", 600)
    ChatStore(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    saver = Saver(path)
    caller = threading.Thread(target=lambda: [saver.save(started(), said("x")) for _ in range(99)])
    caller.start()
    caller.join(60)
    assert not caller.is_alive()
    other.execute("ROLLBACK")
    other.close()
    saver.close()


def test_several_replies_are_saved_while_they_grow(saver, path):
    info, question = started(), said("hello")
    replies = [said("", question.id, "assistant") for _ in range(3)]
    saver.save(info, question, *replies)
    for number, reply in enumerate(replies):
        saver.follow(reply.id, lambda r=reply, n=number: (info.id, replace(r, text=f"text {n}")))
    until(lambda: path.exists() and known(path, info))
    until(lambda: set(stored(path, info)) == {"hello", "text 0", "text 1", "text 2"})
    saver.unfollow(replies[1].id)
    saver.save(info, replace(replies[1], text="whole", end="stop"))
    until(lambda: set(stored(path, info)) == {"hello", "text 0", "whole", "text 2"})


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_kill_loses_at_most_the_last_second_of_a_reply(path):
    script = textwrap.dedent("""
        import sys, time, pathlib
        sys.path[:0] = sys.argv[2:]
        from dataclasses import replace
        from test_saver import Saver, said, started
        saver = Saver(pathlib.Path(sys.argv[1]))
        info, question = started(), said("question")
        reply = said("", question.id, "assistant")
        saver.save(info, question, reply)
        saver.follow(reply.id, lambda: (info.id, replace(reply, text=f"{time.monotonic()}")))
        print(info.id, flush=True)
        time.sleep(60)
    """)
    here = Path(__file__).parent
    command = [sys.executable, "-c", script, path, ROOT, here, here.parent / "helpers"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        chat = writer.stdout.readline().strip()

        def saved():
            with contextlib.suppress(ChatsError), ChatStore(path) as store:
                return store.load(chat).messages[1].text
            return ""  # not yet there

        seen = ""
        for _ in range(3):  # it is saved again and again
            until(lambda: saved() != seen)  # noqa: B023 - called at once
            seen = saved()
        writer.send_signal(signal.SIGKILL)
    assert float(saved()) >= float(seen)
    assert saver_module.INTERVAL < 1


def erase(path, info):
    with ChatStore(path) as store:
        store.erase(info.id)


def saved_by(saver):
    """Wait until all that was given to the saver is written, or told."""
    return saver.call(ChatStore.listed).result(60)


def test_a_chat_that_was_erased_elsewhere_stops_no_other(saver, path, lines):
    erased, other, question = started(), started(), said("one")
    saver.save(erased, question)
    saved_by(saver)
    erase(path, erased)
    saver.save(erased, said("two", question.id, "assistant"))
    saver.save(other, said("three"))
    assert [listed.info.id for listed in saved_by(saver)] == [other.id]
    assert lines == ["this chat is not being saved: it was erased elsewhere"]
    assert saver.why_unsaved(erased.id) == "it was erased elsewhere"
    assert saver.why_unsaved(other.id) is saver.failing is None
    assert saver.close() == ('1 message of "untitled" not saved: it was erased elsewhere',)


def test_what_was_erased_is_not_brought_back_by_a_failure_and_all_that_is_saved_again(
    saver, path, monkeypatch
):
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.02)
    erased, other = started(), started()
    saver.save(erased, said("one"))
    saver.save(other, said("two"))
    saved_by(saver)
    erase(path, erased)
    lock = sqlite3.connect(path, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    saver.save(other, said("three"))
    until(lambda: saver.failing is not None)
    lock.execute("ROLLBACK")
    lock.close()
    until(lambda: saver.failing is None)
    assert [(listed.info.id, listed.messages) for listed in saved_by(saver)] == [(other.id, 2)]


def test_a_chat_read_from_a_file_that_is_replaced_is_saved_whole_in_the_new_one(saver, path):
    info, question = started(), said("one")
    saver.save(info, question)
    saved_by(saver)
    with ChatStore(path) as store:
        chat = store.load(info.id)
    another = Saver(path, interval=0.01)
    another.know(chat)
    for file in path.parent.iterdir():
        file.rename(path.parent.with_name(f"moved-{file.name}"))
    another.save(info, said("two", question.id, "assistant"))
    assert another.close() == ()
    assert stored(path, info) == ["one", "two"]


def test_a_copy_that_was_made_while_a_reply_grew_gets_it_once_in_place_of_the_file(saver, path):
    info, question = started(), said("one")
    reply = said("tw", question.id, "assistant")
    saver.save(info, question, reply)
    saved_by(saver)
    copy = path.with_name("copy.db")
    with (
        contextlib.closing(sqlite3.connect(path)) as db,
        contextlib.closing(sqlite3.connect(copy)) as other,
    ):
        db.backup(other)
    saver.save(info, replace(reply, text="two", end="stop"))
    saved_by(saver)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    copy.chmod(0o600)
    copy.replace(path)
    saver.save(info, said("three", reply.id))
    saved_by(saver)
    assert stored(path, info) == ["one", "two", "three"]


def test_a_chat_that_was_left_is_forgotten_once_it_is_saved(saver, path, monkeypatch):
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.02)
    left, open_here, question = started(), started(), said("one")
    saver.save(left, question)
    saver.save(open_here, said("here"))
    saved_by(saver)
    lock = sqlite3.connect(path, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    saver.save(left, said("two", question.id, "assistant"))
    saver.leave(left.id)
    until(lambda: saver.failing is not None)
    assert saver._chats.keys() == {left.id, open_here.id}
    lock.execute("ROLLBACK")
    lock.close()
    until(lambda: saver._chats.keys() == {open_here.id})
    assert stored(path, left) == ["one", "two"]


def test_a_chat_that_is_opened_again_is_kept_as_before(saver, path):
    info, question = started(), said("one")
    saver.save(info, question)
    chat = saver.call(lambda store: store.load(info.id)).result(60)
    saver.leave(info.id)
    saver.know(chat)
    saved_by(saver)
    for file in path.parent.iterdir():
        file.rename(path.parent.with_name(f"moved-{file.name}"))
    saver.save(info, said("two", question.id, "assistant"))
    assert saver.close() == ()
    assert stored(path, info) == ["one", "two"]


def test_nothing_is_written_to_a_file_that_was_moved_away(saver, path):
    info, question = started(), said("one")
    saver.save(info, question)
    saved_by(saver)
    for file in path.parent.iterdir():
        file.rename(path.parent.with_name(f"moved-{file.name}"))
    saver.save(info, said("two", question.id, "assistant"))
    saved_by(saver)
    assert stored(path, info) == ["one", "two"]


def test_what_one_window_gives_a_chat_is_not_taken_back_by_the_next_message_of_another(saver, path):
    info = started("old prompt", "one", "its draft")
    question = said("hello")
    saver.save(info, question)
    chat = saver.call(lambda store: store.load(info.id)).result()
    other = Saver(path, interval=0.01)
    try:
        other.know(chat)
        theirs = replace(info, system="new prompt", model="another", draft=None)
        other.save(theirs, said("from there", question.id))
        saved_by(other)
        saver.save(replace(info, leaf=question.id), said("from here", question.id))
        saved_by(saver)
        found = saver.call(lambda store: store.load(info.id)).result()
        assert (found.info.system, found.info.model, found.info.draft) == (
            "new prompt",
            "another",
            None,
        )
        assert len(found.messages) == 3
        mine = replace(info, system=None)
        saver.save(mine)  # without a message: it changed here after all
        saved_by(saver)
        other.save(replace(theirs, draft="drafts"), said("more", question.id))
        saved_by(other)
        found = saver.call(lambda store: store.load(info.id)).result()
        assert (found.info.system, found.info.model, found.info.draft) == (
            None,
            "another",
            "drafts",
        )
    finally:
        other.close()


def test_what_another_window_has_continued_is_not_shortened_when_all_is_saved_again(
    saver, path, monkeypatch
):
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.02)
    info, question = started(), said("hello")
    reply = replace(said("one two", question.id, "assistant"), end="interrupt")
    saver.save(info, question, reply)
    saved_by(saver)
    with ChatStore(path) as store:
        store.put([info], [(info.id, replace(reply, text="one two three", end="stop"))])
    lock = sqlite3.connect(path, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    saver.save(info, said("more"))
    until(lambda: saver.failing is not None)
    lock.execute("ROLLBACK")
    lock.close()
    until(lambda: saver.failing is None)
    assert "one two three" in stored(path, info)


def test_a_message_that_the_file_does_not_take_stops_no_other_chat(saver, path, lines):
    bad, good = started(), started()
    orphan = replace(said("an answer to nothing"), parent=7)
    saver.save(bad, orphan)
    saver.save(good, said("fine"))
    assert [listed.info.id for listed in saved_by(saver)] == [good.id]
    assert "FOREIGN KEY" in saver.why_unsaved(bad.id)
    assert len(lines) == 1
    assert "not saved" in saver.close()[0]


def test_a_reply_that_cannot_be_read_while_it_grows_ends_no_saving(saver, path):
    info, question = started(), said("hello")
    reply = said("", question.id, "assistant")
    saver.save(info, question, reply)

    def broken():
        raise RuntimeError("changed size during iteration")

    saver.follow(reply.id, broken)
    other = started()
    saver.save(other, said("still saved"))
    until(lambda: path.exists() and known(path, other))
    saver.unfollow(reply.id)
    saver.save(info, replace(reply, text="whole", end="stop"))
    assert saver.close() == ()
    assert stored(path, info) == ["hello", "whole"]


def test_a_listener_that_fails_ends_no_saving(path):
    def gone(line):
        raise RuntimeError("the loop is closed")

    path.parent.mkdir()
    path.write_bytes(b"no database at all" * 100)
    saver = Saver(path, gone, interval=0.01)
    info = started()
    saver.save(info, said("one"))
    until(lambda: saver.failing is not None)
    path.unlink()
    until(lambda: saver.failing is None)
    assert stored(path, info) == ["one"]
    saver.close()


def test_a_chat_that_was_removed_elsewhere_is_on_the_list_again_when_one_writes_in_it(
    saver, path, lines
):
    info, question = started(), said("hello")
    reply = said("", question.id, "assistant")
    saver.save(info, question, reply)
    saved_by(saver)
    with ChatStore(path) as store:
        store.remove(info.id)
    saver.save(info, replace(reply, text="the end of a reply that had begun", end="stop"))
    assert saved_by(saver) == []
    assert "removed from the list elsewhere; a new message in it" in lines[-1]
    saver.save(info, said("more", reply.id))
    assert [listed.info.id for listed in saved_by(saver)] == [info.id]
    assert "it is on it again" in lines[-1]
    assert len(lines) == 2


def test_a_title_given_elsewhere_stays_until_one_gives_another_here(saver, path):
    info, question = started(), said("one")
    info = replace(info, title="First", named=True)
    saver.save(info, question)
    saved_by(saver)
    with ChatStore(path) as store:
        store.rename(info.id, "Second")
    saver.save(info, said("two", question.id))
    assert [listed.info.title for listed in saved_by(saver)] == ["Second"]
    saver.save(replace(info, title="Third"))
    assert [listed.info.title for listed in saved_by(saver)] == ["Third"]


def test_a_removed_chat_comes_back_by_a_message_also_where_the_clock_was_set_back(
    saver, path, lines
):
    info, question = started(), said("hello")
    reply = said("", question.id, "assistant")
    saver.save(info, question, reply)
    saved_by(saver)
    with ChatStore(path) as store:
        store.remove(info.id)
    saver.save(info, replace(reply, text="a reply that had begun"))
    assert saved_by(saver) == []
    saver.save(info, replace(reply, text="a reply that had begun, and goes on", end="stop"))
    assert saved_by(saver) == []  # nobody has written anything since
    saver.save(info, replace(said("more", reply.id), created=1.0))
    assert [listed.info.id for listed in saved_by(saver)] == [info.id]
    assert "it is on it again" in lines[-1]


def test_what_a_chat_is_given_in_the_moment_of_its_removal_is_there_when_it_is_restored(
    saver, path, lines
):
    info, question = started("old prompt"), said("hello")
    saver.save(info, question)
    saved_by(saver)
    saver.call(lambda store: store.remove(info.id)).result()
    saver.forget(info.id)
    saver.save(replace(info, system="new prompt"))
    assert saved_by(saver) == []  # it stays off the list
    saver.call(lambda store: store.restore(info.id)).result()
    assert saver.call(lambda store: store.load(info.id)).result().info.system == "new prompt"
    assert lines == []


def test_a_chat_removed_here_is_not_written_to_a_file_that_is_another_one(saver, path):
    gone, kept = started(), started()
    saver.save(gone, said("gone"))
    saver.save(kept, said("kept"))
    saved_by(saver)
    saver.call(lambda store: store.remove(gone.id)).result()
    saver.forget(gone.id)
    for file in path.parent.glob("chats.db*"):
        file.unlink()
    saver.save(started(), said("new"))
    assert kept.id in [listed.info.id for listed in saved_by(saver)]
    with ChatStore(path) as store:
        assert gone.id not in [listed.info.id for listed in store.listed(removed=True)]
