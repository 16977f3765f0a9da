"""Commands of a chat in lines."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from picture_files import png

from localspec.chats.journal import Journal
from localspec.chats.saver import Saver
from localspec.chats.store import ChatStore
from localspec.cli.chat_lines import _stream
from localspec.cli.line_commands import Announcer, Leaving, Silent, Talk
from localspec.core.emitted import Origin
from localspec.core.errors import DecodeError, GrammarError, LocalspecError, RemoteError, UsageError
from localspec.core.events import ReplyEvent, Token
from localspec.core.files import paths
from localspec.core.sampling_params import Sampling


@pytest.fixture
def talk() -> Talk:
    return Talk(Journal(system="Be kind."), Sampling(), None)


def test_commands_change_what_the_next_reply_is_asked_with(talk: Talk) -> None:
    assert talk.obey("/temp 0") == "temperature 0 from the next reply on"
    assert talk.obey("/seed 7") == "seed 7 from now on"
    assert (talk.sampling.temperature, talk.seed) == (0.0, 7)
    assert talk.obey("/system") == "system prompt: Be kind."
    assert talk.obey("/system You are a cat.") == "system prompt: You are a cat."
    assert [m.content for m in talk.journal.messages("Hi")] == ["You are a cat.", "Hi"]
    assert talk.obey("/system none") == "no system prompt"
    assert "/quit" in (talk.obey("/help") or "")


@pytest.mark.parametrize("seed", [-1, 2**64 - 1, 10**18])
def test_a_seed_is_what_the_flag_takes(talk: Talk, seed: int) -> None:
    assert talk.obey(f"/seed {seed}") == f"seed {seed} from now on"
    assert talk.seed == seed
    with pytest.raises(UsageError, match="seed must be"):
        talk.obey(f"/seed {2**64}")
    assert talk.obey("/seed") == "a new seed each time"
    assert talk.seed is None


def test_a_question_mark_asks_for_help(talk: Talk) -> None:
    assert "/quit" in (talk.obey("/?") or "")
    assert talk.obey("/? what is this") == talk.obey("/help")
    assert talk.obey("/?!") is None


def test_a_setting_has_its_command(talk: Talk) -> None:
    with pytest.raises(UsageError, match=r"/temp X"):
        talk.obey("/set temperature 0.5")


def test_help_says_that_a_chat_is_saved_where_it_is(talk: Talk, tmp_path: Path) -> None:
    assert "/new           begin another chat\n" in (talk.obey("/help") or "")
    saver = Saver(tmp_path / "chats.db")
    try:
        saved = Talk(Journal(saver), Sampling(), None)
        assert "begin another chat; this one is saved\n" in (saved.obey("/help") or "")
    finally:
        saver.close()


def test_a_new_chat_forgets_what_was_said_and_keeps_the_system_prompt(talk: Talk) -> None:
    talk.journal.begin("Hello")
    talk.journal.grow("Hi.")
    talk.obey("/new")
    assert [m.content for m in talk.journal.messages("And?")] == ["Be kind.", "And?"]


def test_a_chat_that_goes_on_is_named(talk: Talk, capsys: pytest.CaptureFixture[str]) -> None:
    Announcer().welcome(talk.journal.so_far)
    assert "Continuing" not in capsys.readouterr().err
    talk.journal.begin("Hello")
    talk.journal.grow("Hi.")
    Announcer().welcome(talk.journal.so_far)
    assert "Continuing Hello, 2 messages so far." in capsys.readouterr().err


@pytest.mark.parametrize("line", ["hello", " /help", "/usr/bin/env is what?", "/", "/no_think x"])
def test_what_is_no_command_goes_to_the_model(talk: Talk, line: str) -> None:
    assert talk.obey(line) is None


@pytest.mark.parametrize("line", ["/temp", "/temp warm", "/temp -1", "/seed x", "/frobnicate"])
def test_what_cannot_be_meant_is_said(talk: Talk, line: str) -> None:
    with pytest.raises(UsageError):
        talk.obey(line)


def test_a_picture_goes_in_front_of_the_next_message(talk: Talk, tmp_path: Path) -> None:
    path = tmp_path / "cat.png"
    path.write_bytes(b"a cat")
    assert talk.obey(f"/image {path}") == "picture cat.png, in front of the next message"
    with pytest.raises(RemoteError), talk.saying("What is it?"):
        raise RemoteError("the server is gone")
    with talk.saying("What is it?") as said:
        (shown,) = talk.journal.messages(said)[-1].pictures
    assert (shown.name, Path(shown.path).read_bytes()) == ("cat.png", b"a cat")
    with talk.saying("And now?") as said:
        assert said == "And now?"
    talk.obey(f"/image {path}")
    with contextlib.suppress(RemoteError), talk.saying("What is it?") as said:
        talk.journal.begin(said)
        raise RemoteError("the server is gone")
    assert not talk.images  # the question is part of the chat
    talk.obey(f"/image {path}")
    with contextlib.suppress(UsageError), talk.saying("What is it?"):
        raise UsageError("this model cannot see")
    assert not talk.images  # it would end the next message too
    talk.obey(f"/image {path}")
    talk.obey("/new")
    assert not talk.images
    with pytest.raises(UsageError, match="cannot be read"):
        talk.obey("/image nowhere.png")
    os.mkfifo(tmp_path / "pipe.png")  # whoever opens it waits for ever
    with pytest.raises(UsageError, match="no regular file"):
        talk.obey(f"/image {tmp_path}/pipe.png")
    with pytest.raises(UsageError, match="needs a file"):
        talk.obey("/image")


@pytest.mark.parametrize("kind", [RemoteError, GrammarError, DecodeError])
def test_a_reply_that_fails_in_the_middle_has_ended(
    talk: Talk, kind: type[LocalspecError], capsys: pytest.CaptureFixture[str]
) -> None:
    def events() -> Iterator[ReplyEvent]:
        yield Token(1, "Be", Origin.PLAIN, None)
        raise kind("it takes too long")

    with pytest.raises(kind):
        _stream(events(), "Why?", talk.journal, Silent(), None)
    assert capsys.readouterr().out == "Be\n"
    assert [(m.text, m.end) for m in talk.journal._messages] == [("Why?", None), ("Be", "failed")]


def test_a_question_is_saved_before_its_reply_begins_and_once_where_it_is_asked_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "chats.db"
    saver = Saver(path)
    journal = Journal(saver)

    def saved() -> list[str]:
        def texts(store: ChatStore) -> list[str]:
            return [message.text for message in store.load(store.last().id).messages]

        return saver.call(texts).result()

    def fails() -> Iterator[ReplyEvent]:
        assert saved() == ["Why?"]  # nothing of the reply has come
        raise RemoteError("the server is gone")
        yield

    for _ in range(2):
        with pytest.raises(RemoteError):
            _stream(fails(), "Why?", journal, Silent(), None)
    assert [m.content for m in journal.messages("How?")] == ["How?"]

    def answers() -> Iterator[ReplyEvent]:
        yield Token(1, "Be", Origin.PLAIN, None)

    _stream(answers(), "Why?", journal, Silent(), None)
    assert saver.close() == ()
    with ChatStore(path) as store:
        chat = store.load(store.last().id)
    assert [m.text for m in chat.messages] == ["Why?", "Be"]
    assert chat.info.leaf == chat.messages[-1].id


def test_leaving(talk: Talk) -> None:
    with pytest.raises(Leaving):
        talk.obey("/bye")


def test_a_picture_that_cannot_be_kept_is_said_and_the_chat_goes_on(
    talk: Talk, tmp_path: Path
) -> None:
    (tmp_path / "cat.png").write_bytes(png())
    paths.make(paths.data_dir() / "pictures").chmod(0o777)
    with pytest.raises(UsageError, match=r"cat\.png cannot be kept: others may write to"):
        talk.obey(f"/image {tmp_path / 'cat.png'}")
    assert not talk.images
