"""Chats in SQLite: what is written is found again, and every fault is one clear line."""

import contextlib
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.chats import schema, transfer, values
from localspec.chats.store import ChatStore
from localspec.chats.values import Chat, ChatMessage, new_message_id, started, title_of
from localspec.core.errors import ChatsError, ChatsFileError
from localspec.core.files import paths

ROOT = Path(__file__).parents[2]


def message(text, parent=None, role="user", **more):
    return ChatMessage(new_message_id(parent), parent, role, text, created=time.time(), **more)


def a_chat(*texts, title="a title", **more):
    """A chat of one branch."""
    messages, parent = [], None
    for number, text in enumerate(texts):
        messages.append(message(text, parent, ("user", "assistant")[number % 2]))
        parent = messages[-1].id
    return Chat(replace(started(**more), title=title, leaf=parent), tuple(messages))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "chats.db"


@pytest.fixture
def store(path):
    with ChatStore(path) as opened:
        yield opened


def test_a_chat_is_read_as_it_was_written(store, path):
    chat = a_chat("hello", "hi\0 ünï 🎉", system="be brief", model="demo")
    branch = message("hi!", chat.messages[0].id, "assistant", end="stop", details={"seed": 3})
    chat = replace(chat, messages=(*chat.messages, branch))
    store.put_chats([chat])
    assert store.load(chat.info.id) == chat
    with ChatStore(path) as other:
        assert other.load(chat.info.id) == chat


@pytest.mark.parametrize("details", ["[1]", '"seed"', "3", "{", "null"])
def test_details_of_a_message_that_are_no_object_are_left_out(store, path, details):
    chat = a_chat("hello", "hi")
    store.put_chats([chat])
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE messages SET details = ?", (details,))
    found = store.load(chat.info.id)
    assert found == chat
    assert "hi" in transfer.to_markdown(found)


def test_half_a_character_is_stored_as_a_replacement(store):
    chat = a_chat("half \ud83d of one")
    store.put_chats([chat])
    (stored,) = store.load(chat.info.id).messages
    assert stored.text.startswith("half ")
    assert "\ufffd" in stored.text


def test_the_chat_used_last_comes_first(store):
    first, second = a_chat("one", "two"), a_chat("three")
    store.put_chats([first])
    store.put_chats([second])
    later = replace(first.info, updated=first.info.updated + 5)
    store.put([later], [])
    assert [(x.info.id, x.messages) for x in store.listed()] == [
        (first.info.id, 2),
        (second.info.id, 1),
    ]
    assert store.last() == later


def test_no_chat_at_all_is_said(store):
    with pytest.raises(ChatsError, match="no chat yet"):
        store.last()


def test_a_chat_is_found_by_the_beginning_of_its_id(store):
    one = a_chat("x")
    two = Chat(replace(started(), id="abcd000000"))
    three = Chat(replace(started(), id="abce000000"))
    for chat in (one, two, three):
        store.put_chats([chat])
    assert store.find("ABCD") == two.info
    with pytest.raises(ChatsError, match="several chats begin with 'abc'"):
        store.find("abc")
    for nothing in ("zz", "", "%"):
        with pytest.raises(ChatsError, match="no chat"):
            store.find(nothing)


def test_a_removed_chat_can_be_restored_until_it_is_purged(store, path):
    chat = a_chat("a needle")
    store.put_chats([chat])
    store.remove(chat.info.id)
    assert store.listed() == []
    assert store.search("needle") == []
    assert [x.info.id for x in store.listed(removed=True)] == [chat.info.id]
    store.restore(chat.info.id)
    assert [x.info.id for x in store.listed()] == [chat.info.id]
    store.remove(chat.info.id)
    store.purge(days=1)
    assert store.load(chat.info.id).messages
    store.purge(days=-1)
    with pytest.raises(ChatsError, match="no chat"):
        store.load(chat.info.id)
    assert store.search("needle") == []
    store.check()


def test_a_title_that_a_person_gave_is_not_overwritten_by_another_window(store):
    chat = a_chat("hello")
    store.put_chats([chat])
    store.rename(chat.info.id, "mine")
    store.put_chats([chat])
    assert store.load(chat.info.id).info.title == "mine"
    store.put([replace(chat.info, title="older", named=True)], [])
    assert store.load(chat.info.id).info.title == "mine"
    store.put([replace(chat.info, title="newer")], [], given={chat.info.id: {"title"}})
    assert store.load(chat.info.id).info.title == "newer"


def test_search_finds_words_beginnings_phrases_and_parts(store):
    texts = {
        "fox": "The quick brown Fox jumps",
        "cafe": "Un Café noir, s'il vous plaît",
        "code": "def parse_args(x): return 100%",
        "chinese": "我喜欢喝绿茶",
        "brown": "brown is not quick",
    }
    ids = {}
    for name, text in texts.items():
        chat = a_chat(text, title=name)
        store.put_chats([chat])
        ids[name] = chat.info.title

    def found(query):
        return {hit.info.title for hit in store.search(query)}

    assert found("fox") == {"fox"}
    assert found("quick brown") == {"fox", "brown"}
    assert found('"quick brown"') == {"fox"}
    assert found("cafe") == {"cafe"}
    assert found("qui") == {"fox", "brown"}
    assert found("arse_ar") == {"code"}
    assert found("绿茶") == {"chinese"}
    assert found("100%") == {"code"}
    assert found("%") == {"code"}
    for nothing in ("zebra", "", "   ", '"', "AND", "NEAR(", "*", "fox NOT brown", "text:", "\0"):
        assert found(nothing) == set(), nothing


def test_search_follows_a_reply_that_grows_and_shows_the_place(store):
    chat = a_chat("question")
    store.put_chats([chat])
    reply = message("first", chat.messages[0].id, "assistant")
    store.put([chat.info], [(chat.info.id, reply)])
    grown = replace(reply, text="x " * 100 + "the harvest\nmoon" + " y" * 100)
    store.put([chat.info], [(chat.info.id, grown)])
    assert store.search("first") == []
    (hit,) = store.search("harvest moon")
    assert (hit.message, hit.role) == (reply.id, "assistant")
    assert "the harvest moon" in hit.excerpt
    assert len(hit.excerpt) < 130


@pytest.mark.skipif(sys.platform == "win32", reason="modes")
def test_nobody_else_can_read_the_files(store, path):
    store.put_chats([a_chat("secret")])
    files = [path.parent, *path.parent.iterdir()]
    assert len(files) >= 3
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file


def test_titles_are_one_short_line():
    assert title_of("\n  Why is\tthe sky blue?\nReally") == "Why is the sky blue?"
    assert title_of("") == "untitled"
    family = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
    assert title_of(f"my {family}\u202e") == f"my {family}"
    assert title_of("word " * 50).endswith("word…")
    assert len(title_of("x" * 500)) == 61
    assert title_of("a\x1b[31mb") == "a [31mb"


# -- faults ------------------------------------------------------------------------------------


def test_a_file_of_a_newer_localspec_is_refused_and_left_alone(path):
    with ChatStore(path) as store:
        store.put_chats([a_chat("hello")])
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(ChatsFileError, match=r"newer localspec \(format 99") as caught:
        ChatStore(path)
    assert caught.value.exit_code == 7


def test_an_older_file_is_brought_up_to_date_once(path):
    with ChatStore(path) as store:
        store.put_chats([a_chat("hello")])
    newer = (*schema.MIGRATIONS, ("ALTER TABLE chats ADD COLUMN colour TEXT",))
    for _ in range(2):
        db = schema.connect(path, newer)
        assert db.execute("SELECT colour FROM chats").fetchall() == [(None,)]
        db.close()


def test_who_opens_the_chats_while_another_process_makes_the_tables_finds_them(path, monkeypatch):
    """Two windows that are opened at once in a new home: for one the file was not ours."""
    opened, real = [], sqlite3.connect

    def meanwhile(statement):
        if statement.startswith("SELECT count") and len(opened) == 1:
            ChatStore(path).close()

    def connect(*asked, **how):
        connection = real(*asked, **how)
        opened.append(connection)
        if len(opened) == 1:
            connection.set_trace_callback(meanwhile)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect)
    with ChatStore(path) as store:
        assert store.search("anything") == []
    assert len(opened) == 2


def test_chats_of_the_first_format_are_read(path):
    path.parent.mkdir()
    schema.connect(path, schema.MIGRATIONS[:1]).close()
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO chats VALUES ('a', 't', 0, NULL, 'demo', NULL, 1, 2, NULL)")
    db.close()
    with ChatStore(path) as store:
        (listed,) = store.listed()
        assert (store.load("a").info.model, store.load("a").info.draft) == ("demo", None)
        assert listed.info.id == "a"
        store.put_chats([a_chat("hello", model="demo", draft="small")])
        assert store.load(store.last().id).info.draft == "small"


def test_a_failed_migration_changes_nothing(path):
    ChatStore(path).close()
    with pytest.raises(ChatsError):
        schema.connect(path, (*schema.MIGRATIONS, ("CREATE TABLE more (x)", "nonsense")))
    ChatStore(path).close()


def test_another_programs_database_is_refused(path):
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    with pytest.raises(ChatsFileError, match="another program"):
        ChatStore(path)


@pytest.mark.parametrize("content", [b"no database" * 500, b"SQLite format 3\0" * 40])
def test_what_is_no_database_is_said_to_be_damaged(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ChatsFileError, match="damaged") as caught:
        ChatStore(path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == content


def test_damage_in_the_middle_is_found(path):
    with ChatStore(path) as store:
        store.put_chats([a_chat(*[f"text {i} " * 200 for i in range(50)])])
    raw = bytearray(path.read_bytes())
    raw[4096 * 3 : -4096] = os.urandom(len(raw) - 4096 * 4)
    path.write_bytes(raw)

    def read():
        with ChatStore(path) as store:
            store.check()
            store.load(store.last().id)

    with pytest.raises(ChatsFileError, match="damaged"):
        read()


def test_a_locked_file_is_said_in_one_line(path, monkeypatch):
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.05)
    chat = a_chat("hello")
    with ChatStore(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ChatsError, match="locked by another"):
            store.put_chats([chat])
        other.execute("ROLLBACK")
        other.close()
        store.put_chats([chat])
        assert store.load(chat.info.id) == chat


def test_a_full_disk_is_said_and_what_was_there_stays(store):
    kept = a_chat("kept")
    store.put_chats([kept])
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    big = a_chat("x" * 100_000)
    with pytest.raises(ChatsError, match="is full; free some space"):
        store.put_chats([big])
    assert store.load(kept.info.id) == kept
    with pytest.raises(ChatsError, match="no chat"):
        store.load(big.info.id)
    store._db.execute(f"PRAGMA max_page_count = {pages + 1000}")
    store.put_chats([big])
    assert store.load(big.info.id) == big


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may all")
def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    with pytest.raises(ChatsError, match="LOCALSPEC_HOME"):
        ChatStore(folder / "chats.db")


def test_a_file_in_place_of_the_folder_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Exception, match="LOCALSPEC_HOME"):
        ChatStore(tmp_path / "file" / "chats.db")


def test_two_processes_write_the_same_file(path):
    ChatStore(path).close()
    script = textwrap.dedent("""
        import sys, pathlib
        sys.path[:0] = sys.argv[2:4]
        from test_store import ChatStore, a_chat
        with ChatStore(pathlib.Path(sys.argv[1])) as store:
            for i in range(20):
                store.put_chats([a_chat(f"text {i}", "reply")])
    """)
    command = [sys.executable, "-c", script, str(path), str(ROOT), str(Path(__file__).parent)]
    writers = [subprocess.Popen(command) for _ in range(2)]
    assert [w.wait(60) for w in writers] == [0, 0]
    with ChatStore(path) as store:
        assert len(store.listed()) == 40
        store.check()


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_killed_in_the_middle_of_writing_all_that_was_finished_is_there(path):
    script = textwrap.dedent("""
        import sys, pathlib
        sys.path[:0] = sys.argv[2:4]
        from test_store import ChatStore, a_chat
        with ChatStore(pathlib.Path(sys.argv[1])) as store:
            while True:
                chat = a_chat("text " * 2000, "reply " * 2000)
                store.put_chats([chat])
                print(chat.info.id, flush=True)
    """)
    command = [sys.executable, "-c", script, str(path), str(ROOT), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        ids = [writer.stdout.readline().strip() for _ in range(10)]
        writer.send_signal(signal.SIGKILL)
        ids += writer.stdout.read().split()
    with ChatStore(path) as store:
        store.check()
        for chat in ids:
            assert len(store.load(chat).messages) == 2


def test_a_copy_of_the_file_and_its_log_is_whole(path, tmp_path):
    store = ChatStore(path)
    chat = a_chat("hello")
    store.put_chats([chat])
    shutil.copytree(path.parent, tmp_path / "copy")  # as a power cut would leave it
    store.close()
    with ChatStore(tmp_path / "copy" / "chats.db") as copy:
        assert copy.load(chat.info.id) == chat


def test_what_is_erased_is_nowhere_in_the_files_any_more(path):
    info = started()
    with ChatStore(path) as store:
        kept = started()
        store.put([kept], [(kept.id, ChatMessage(new_message_id(), None, "user", "kept words", 1))])
        question = ChatMessage(new_message_id(), None, "user", "about quixotism", 1)
        store.put([replace(info, title="zymurgy")], [(info.id, question)])
        reply = ChatMessage(new_message_id(question.id), question.id, "assistant", "", 1)
        for length in (10, 2000, 9000, 20000):  # as it grows, page after page
            text = ("flibbertigibbet " * 2000)[:length]
            store.put([], [(info.id, replace(reply, text=text))])
        store.erase(info.id)
        assert [hit.info.id for hit in store.search("kept", 9)] == [kept.id]
        assert store.search("quixotism", 9) == []
        left = b"".join(file.read_bytes() for file in path.parent.iterdir())
        for word in (b"quixotis", b"zymurg", b"ibbertigib"):
            assert word not in left
    with ChatStore(path) as store:
        store.check()


def _saved_state():
    file = paths.states_dir() / "of-a-pair" / "some.state"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"text of a chat")
    return file


def test_saved_states_go_with_a_chat_that_is_erased(path):
    file = _saved_state()
    chat = a_chat("why?", "Because.")
    with ChatStore(path) as store:
        store.put([chat.info], [(chat.info.id, one) for one in chat.messages])
        store.remove(chat.info.id)
        assert file.exists()
        store.erase(chat.info.id)
    assert not file.parent.exists()


def test_saved_states_go_with_a_chat_that_is_purged(path):
    file = _saved_state()
    chat = a_chat("why?", "Because.")
    with ChatStore(path) as store:
        store.put([chat.info], [(chat.info.id, one) for one in chat.messages])
        store.purge()
        assert file.exists()
        store.remove(chat.info.id)
        store.purge(days=-1)
    assert not file.exists()


def test_a_state_that_cannot_be_erased_is_an_error_that_names_it(path, monkeypatch):
    file = _saved_state()
    chat = a_chat("why?", "Because.")

    def refused(self, missing_ok=False):
        raise PermissionError(13, "Permission denied")

    with ChatStore(path) as store:
        store.put([chat.info], [(chat.info.id, one) for one in chat.messages])
        monkeypatch.setattr(Path, "unlink", refused)
        with pytest.raises(ChatsError, match=f"{file}.*Permission denied; delete the folder"):
            store.erase(chat.info.id)
        assert store.listed() == []


def test_what_is_erased_stays_erased_for_every_process(path):
    chat, other = a_chat("hello", "hi"), a_chat("and you?")
    with ChatStore(path) as one, ChatStore(path) as two:
        one.put_chats([chat])
        two.erase(chat.info.id)
        more = message("more", chat.messages[-1].id)
        infos, messages = [chat.info, other.info], [(chat.info.id, more)]
        written = one.put(infos, messages, known=[chat])
        assert written.erased == {chat.info.id}
        assert [listed.info.id for listed in one.listed()] == [other.info.id]
        with pytest.raises(ChatsError, match="erased for good"):
            two.put_chats([chat])
        for change in (one.restore, one.remove, lambda gone: one.rename(gone, "back")):
            with pytest.raises(ChatsError, match="was erased for good"):
                change(chat.info.id)


def test_a_purged_chat_stays_erased_and_a_process_of_before_is_refused(path):
    chat = a_chat("hello")
    with ChatStore(path) as store:
        store.put_chats([chat])
        store.remove(chat.info.id)
        store.purge(days=-1)
        insert = "INSERT INTO chats (id, title, named, created, updated) VALUES (?, '', 0, 0, 0)"
        with pytest.raises(sqlite3.IntegrityError, match="erased"):
            store._db.execute(insert, (chat.info.id,))


def test_an_import_of_an_erased_chat_is_a_new_chat(path):
    chat = a_chat("hello")
    text = transfer.to_json([chat])
    with ChatStore(path) as store:
        store.put_chats([chat])
        store.erase(chat.info.id)
        store.put_chats(transfer.from_json(text))
        (listed,) = store.listed()
        assert listed.info.id != chat.info.id


@pytest.mark.parametrize("text", ["another question", "the question"])
def test_a_message_never_takes_the_place_of_another_one_with_its_id(store, text):
    chat, other = a_chat("the question"), a_chat("hello")
    store.put_chats([chat])
    taken = chat.messages[0].id
    same = ChatMessage(taken, None, "user", text, created=time.time())
    for owner in (chat, other):
        with pytest.raises(ChatsError, match=r"another message in .* has the same id; export"):
            store.put([owner.info], [(owner.info.id, same)])
    assert store.load(chat.info.id) == chat
    assert [listed.info.id for listed in store.listed()] == [chat.info.id]


def test_a_reply_that_two_windows_continue_is_two_branches(path):
    chat = a_chat("tell me", "Once")
    info, (question, reply) = chat.info, chat.messages
    with ChatStore(path) as one, ChatStore(path) as two:
        one.put_chats([chat])
        longer = replace(reply, text="Once upon a time there was an owl.", end="stop")
        one.put([info], [(info.id, longer)], before={reply.id: reply})
        theirs = replace(reply, text="Once more", end="interrupt")
        written = two.put([info], [(info.id, theirs)], before={reply.id: reply})
        theirs = replace(theirs, id=written.moved[reply.id])
        assert {m.id: m.text for m in two.load(info.id).messages} == {
            question.id: "tell me",
            reply.id: longer.text,
            theirs.id: theirs.text,
        }
        assert two.load(info.id).info.leaf == theirs.id
        for text in ("Once more of it", "Once"):  # its own growth, and its own end cut by a stop
            mine = replace(theirs, text=text)
            assert not two.put([info], [(info.id, mine)], before={mine.id: theirs}).moved
            theirs = mine
        messages = two.load(info.id).messages
        assert [m.parent for m in messages] == [None, question.id, question.id]
        assert {m.text for m in messages} == {"tell me", longer.text, "Once"}


def test_a_variant_of_the_same_date_is_no_copy_of_a_reply_that_two_windows_continue(path):
    """Two variants of one date, as an import may have them."""
    chat = a_chat("tell me", "Once")
    info, (question, reply) = chat.info, chat.messages
    variant = replace(reply, id=reply.id + 1, text="Once a")
    with ChatStore(path) as store:
        store.put_chats([replace(chat, messages=(question, reply, variant))])
        for text in ("Once a b", "Once a c"):
            mine = replace(reply, text=text)
            store.put([info], [(info.id, mine)], before={reply.id: reply, variant.id: variant})
        texts = [m.text for m in store.load(info.id).messages]
        assert sorted(texts) == ["Once a", "Once a b", "Once a c", "tell me"]


def test_a_message_whose_parent_is_missing_begins_a_branch_and_stops_no_export(store, path):
    chat, other = a_chat("tell me", "Once", "And then?"), a_chat("hello", "Hi.")
    store.put_chats([chat, other])
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM messages WHERE id = ?", (chat.messages[0].id,))
    found = store.load(chat.info.id)
    reply, last = found.messages
    assert (reply.text, reply.parent, last.parent) == ("Once", None, reply.id)
    assert "And then?" in transfer.to_markdown(found)
    assert len(transfer.from_json(transfer.to_json([found, other]))) == 2
    grown = replace(reply, text="Once more")  # as it was read, it can be gone on with
    store.put([found.info], [(found.info.id, grown)], before={m.id: m for m in found.messages})
    assert store.load(chat.info.id).messages[0].text == "Once more"


@pytest.mark.parametrize("now", [0.0, 1.8e9])
def test_windows_whose_clock_was_set_back_give_different_ids(monkeypatch, now):
    """Else the message of one would take the place of the other's."""
    parent = int(1.9e15) << 10
    monkeypatch.setattr(time, "time", lambda: now)
    windows = [values._Clock(), values._Clock()]
    ids = [window.next(parent) for window in windows for _ in range(100)]
    assert len(set(ids)) == 200
    assert parent < min(ids) <= max(ids) < 1 << 63
