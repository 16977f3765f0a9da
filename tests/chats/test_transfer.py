"""Exports and imports: what goes out comes back in."""

import errno
import json
import math
import os
import string
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.chats import transfer
from localspec.chats.store import ChatStore
from localspec.chats.tree import Tree
from localspec.chats.values import Chat, ChatInfo, ChatMessage, model_at, new_message_id, started
from localspec.core.errors import ChatsError, ChatsFileError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
TIME = st.floats(0, 1.7e9)


@st.composite
def chats(draw):
    messages = []
    for _ in range(draw(st.integers(0, 8))):
        parent = draw(st.sampled_from([None, *[m.id for m in messages]]))
        messages.append(
            ChatMessage(
                id=new_message_id(parent),
                parent=parent,
                role=draw(st.sampled_from(["user", "assistant"])),
                text=draw(TEXT),
                created=draw(TIME),
                end=draw(st.sampled_from([None, "stop", "length", "interrupt", "failed"])),
                details=draw(
                    st.none() | st.dictionaries(st.text(string.ascii_letters), st.integers())
                ),
            )
        )
    info = ChatInfo(
        id=started().id,
        title=draw(TEXT),
        named=draw(st.booleans()),
        system=draw(st.none() | TEXT),
        model=draw(st.none() | TEXT),
        leaf=draw(st.sampled_from([None, *[m.id for m in messages]])),
        created=draw(TIME),
        updated=draw(TIME),
    )
    return Chat(info, tuple(messages))


def without_ids(chat):
    """A chat with ids that only count."""
    numbers = {None: None} | {m.id: n for n, m in enumerate(chat.messages)}
    info = replace(chat.info, id="", leaf=numbers[chat.info.leaf])
    messages = [replace(m, id=numbers[m.id], parent=numbers[m.parent]) for m in chat.messages]
    return Chat(info, tuple(messages))


@given(st.lists(chats(), max_size=3))
def test_export_and_import_is_the_identity(exported):
    text = transfer.to_json(exported)
    imported = transfer.from_json(text)
    assert [without_ids(c) for c in imported] == [without_ids(c) for c in exported]
    assert transfer.to_json(imported) == text
    ids = [c.info.id for c in (*imported, *exported)]
    assert len(set(ids)) == len(ids)


@settings(max_examples=15)
@given(chats())
def test_the_store_keeps_all_that_an_export_holds(tmp_path_factory, chat):
    with ChatStore(tmp_path_factory.mktemp("chats") / "chats.db") as store:
        store.put_chats([chat])
        assert transfer.to_json([store.load(chat.info.id)]) == transfer.to_json([chat])


GOOD = {
    "format": "localspec-chats",
    "version": 1,
    "chats": [
        {
            "title": "t",
            "created": 1.0,
            "updated": 2,
            "messages": [
                {"id": 1, "parent": None, "role": "user", "text": "a", "created": 1},
                {"id": 2, "parent": 1, "role": "assistant", "text": "b", "created": 1},
            ],
        }
    ],
}


def changed(change):
    data = json.loads(json.dumps(GOOD))
    change(data)
    return json.dumps(data)


def test_a_file_with_only_what_must_be_there_is_imported():
    (chat,) = transfer.from_json(json.dumps(GOOD))
    assert [m.text for m in transfer.branch(chat)] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("[]", '"format" is not'),
        ("[" * 100_000, "not JSON"),
        ('{"format": "x"}', '"format" is not'),
        (changed(lambda d: d.update(version=2)), "version 2.*update"),
        (changed(lambda d: d.update(more=1)), "more"),
        (changed(lambda d: d["chats"][0].pop("title")), "title"),
        (changed(lambda d: d["chats"][0].update(leaf=7)), "leaf 7"),
        (changed(lambda d: d["chats"][0]["messages"][0].update(role="system")), "role"),
        (changed(lambda d: d["chats"][0]["messages"][1].update(id=1)), "twice"),
        (changed(lambda d: d["chats"][0]["messages"][0].update(parent=2)), "does not come before"),
        (changed(lambda d: d["chats"][0]["messages"][1].update(parent=9)), "does not come before"),
        (changed(lambda d: d["chats"][0]["messages"][1].update(created="now")), "created"),
        (changed(lambda d: d["chats"][0].update(updated=9e18)), "updated is 9e.18.* not a time"),
        (changed(lambda d: d["chats"][0].update(created=-1.0)), "created is -1,.* not a time"),
        (
            changed(lambda d: d["chats"][0]["messages"][1].update(created=1e300)),
            "created of message 2 is 1e.300",
        ),
        (changed(lambda d: d["chats"][0].update(updated=math.nan)), "NaN is not a number"),
        (
            changed(lambda d: d["chats"][0]["messages"][1].update(details={"x": 0.5})).replace(
                "0.5", "1e999"
            ),
            "1e999 is a number beyond floating point",
        ),
    ],
)
def test_anything_else_is_refused_in_one_line(text, reason):
    with pytest.raises(ChatsFileError, match=reason) as caught:
        transfer.from_json(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("there", ["http://h.example/v1", "https://h.example", "unix:/tmp/s"])
def test_a_file_names_no_server_for_the_next_message(there):
    said = []
    text = changed(lambda d: d["chats"][0].update(model=model_at(there, "m")))
    (chat,) = transfer.from_json(text, said.append)
    assert chat.info.model is None
    assert [there in line for line in said] == [True]
    said.clear()
    (chat,) = transfer.from_json(changed(lambda d: d["chats"][0].update(model="demo")), said.append)
    assert (chat.info.model, said) == ("demo", [])


def test_no_imported_chat_was_used_in_the_future():
    (chat,) = transfer.from_json(changed(lambda d: d["chats"][0].update(updated=250000000000.0)))
    assert chat.info.updated <= time.time()


def test_markdown_names_the_model_of_each_reply_where_there_were_several():
    def said(role, text, parent=None, **more):
        return ChatMessage(new_message_id(parent), parent, role, text, 1.0, **more)

    why = said("user", "Why?")
    one = said("assistant", "Because.", why.id, end="stop", details={"model": "small"})
    how = said("user", "How?", one.id)
    two = said("assistant", "So.", how.id, end="stop", details={"model": "large"})
    info = replace(started(model="large"), leaf=two.id)
    text = transfer.to_markdown(Chat(info, (why, one, how, two)))
    assert "*small, large · " in text
    assert "## Model (small)\n\nBecause." in text
    assert "## Model (large)\n\nSo." in text
    alone = transfer.to_markdown(Chat(replace(info, leaf=one.id), (why, one)))
    assert "*small · " in alone  # not the model of another branch or of later
    assert "## Model\n\nBecause." in alone


def test_markdown_names_the_draft_model_and_says_where_another_one_or_none_helped():
    question = ChatMessage(new_message_id(None), None, "user", "Why?", 1.0)
    drafts = {"small-draft": "Because.", None: "So."}
    messages, parent = [question], question.id
    for draft, text in drafts.items():
        details = {"model": "large"} | ({"draft": draft} if draft else {})
        reply = ChatMessage(new_message_id(parent), parent, "assistant", text, 1.0, "stop", details)
        messages.append(reply)
        parent = reply.id
        if draft:
            alone = Chat(replace(started(model="large"), leaf=parent), tuple(messages))
            shown = transfer.to_markdown(alone)
            assert "*large · draft model: small-draft · " in shown
            assert "## Model\n\nBecause." in shown
    both = transfer.to_markdown(Chat(replace(started(model="large"), leaf=parent), tuple(messages)))
    assert "## Model (draft model: small-draft)\n\nBecause." in both
    assert "## Model (without a draft model)\n\nSo." in both


def test_a_time_without_a_date_is_shown_as_such():
    for seconds in (9e18, -1.0, math.inf, math.nan):
        info = replace(started(), created=seconds)
        assert "*unknown date*" in transfer.to_markdown(Chat(info))


def test_markdown_shows_the_branch_looked_at():
    def said(role, text, parent=None, **more):
        return ChatMessage(new_message_id(parent), parent, role, text, 1.0, **more)

    question = said("user", "Why?")
    first = said("assistant", "Because.", question.id, end="stop")
    second = said("assistant", "```py\nx\n```", question.id, end="interrupt")
    info = replace(started("Be\nkind", "demo"), title="Reasons", leaf=second.id, created=0.0)
    text = transfer.to_markdown(Chat(info, (question, first, second)))
    assert text.startswith("# Reasons\n\n*demo · 19")
    assert "> Be\n> kind" in text
    assert "## You\n\nWhy?\n\n## Model\n\n```py\nx\n```\n\n*(stopped)*\n" in text
    assert "Because" not in text
    killed = said("assistant", "", question.id)
    text = transfer.to_markdown(Chat(replace(info, leaf=killed.id), (question, killed)))
    assert text.endswith("## Model\n\n*(cut short)*\n")
    newest = transfer.to_markdown(Chat(replace(info, leaf=None), (question, second, first)))
    assert "Why?" in newest


@given(st.lists(st.integers(-1, 50), max_size=30))
def test_every_message_is_on_the_path_to_its_newest_leaf(choices):
    tree, ids = Tree(), []
    for number, choice in enumerate(choices):
        parent = ids[choice % len(ids)] if ids and choice >= 0 else None
        tree.add(number, parent)
        ids.append(number)
    for message in ids:
        path = tree.path(tree.newest_leaf(message))
        assert message in path
        assert path == sorted(path)
        assert path[: path.index(message) + 1] == tree.path(message)


def exported(**message):
    whole = {"id": 1, "parent": None, "role": "user", "text": "a", "created": 1} | message
    chat = {"title": "t", "created": 1, "updated": 1, "messages": [whole]}
    return json.dumps({"format": "localspec-chats", "version": 1, "chats": [chat]})


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return {"deep": value}


@pytest.mark.parametrize("depth", [40, 400, 900])
def test_details_that_could_not_be_exported_again_are_not_imported(depth):
    with pytest.raises(ChatsFileError, match="nested too deeply"):
        transfer.from_json(exported(details=nested(depth)))
    assert len(transfer.from_json(exported(details=nested(8)))) == 1


def test_a_chat_that_cannot_be_exported_is_named():
    chat = transfer.from_json(exported())[0]
    deep = replace(chat, messages=(replace(chat.messages[0], details=nested(5000)),))
    with pytest.raises(ChatsFileError, match=chat.info.id):
        transfer.to_json([chat, deep])


def test_a_number_that_no_float_can_be_is_refused_in_one_line():
    with pytest.raises(ChatsFileError, match="expected a number"):
        transfer.from_json(exported(created=10**400))


def test_a_file_beyond_the_budget_is_not_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "LARGEST", 1000)
    (tmp_path / "large.json").write_bytes(b" " * 1001)
    with pytest.raises(ChatsFileError, match="larger than"):
        transfer.read_file(tmp_path / "large.json")


def test_an_export_that_fails_leaves_nothing_and_can_be_tried_again(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    place = tmp_path / "chats.json"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ChatsError, match="No space left"):
            transfer.write(place, "text")
    assert list(tmp_path.iterdir()) == []
    transfer.write(place, "text")
    assert place.read_text() == "text"
    assert place.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ChatsError, match="is there already"):
        transfer.write(place, "other")
    assert [p.name for p in tmp_path.iterdir()] == ["chats.json"]


def test_details_of_odd_texts_and_numbers_come_out_as_they_went_in():
    odd = {"half": "a\ud800b", "large": 10**30, "escape": "\x1b"}
    (chat,) = transfer.from_json(exported(details=odd))
    text = transfer.to_json([chat])
    assert text.encode("utf-8")
    assert json.loads(text)["chats"][0]["messages"][0]["details"] == odd
    with pytest.raises(ChatsFileError, match="not a number"):
        transfer.from_json(exported(details={"a": float("nan")}))
