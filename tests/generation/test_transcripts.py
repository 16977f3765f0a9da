"""Texts that were said before keep their tokens, within bounds."""

from __future__ import annotations

import threading

import pytest

from localspec.generation import transcripts
from localspec.generation.transcripts import Transcript, Transcripts


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def new() -> Transcript:
    return Transcript(letters, letters)


def known(transcript: Transcript, text: str) -> bool:
    return transcript.encode(text) != letters(text)


def test_replies_keep_their_tokens_and_a_repeated_turn_gets_the_same_ones() -> None:
    transcript = new()
    transcript.remember("ab", [999])
    transcript.remember("abcd", [999, 888])
    assert transcript.encode("abcde") == [999, 888, ord("e")]
    assert transcript.encode("abX") == [999, ord("X")]
    assert transcript.encode("b") == [ord("b")]


def test_nothing_is_no_beginning_of_a_text() -> None:
    transcript = Transcript(lambda text: [1, *letters(text)], letters)  # with a token that begins
    transcript.remember("", [])
    transcript.remember("", [7, 8])
    assert transcript.encode("ab") == [1, *letters("ab")]


def test_an_agent_that_grows_to_a_long_context_is_bounded_by_its_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transcripts, "_TOKENS", 1000)
    kept = Transcripts(new)
    for turn in range(1, 60):
        kept.remember("agent", "x" * turn * 10, [9] * turn * 10)
        assert kept.size <= 1000
    assert kept.of("agent").encode("x" * 590 + "!") == [9] * 590 + [ord("!")]
    assert not known(kept.of("agent"), "x" * 10)
    kept.remember("agent", "y" * 5000, [8] * 5000)  # the newest is kept, however long it is
    assert kept.of("agent").encode("y" * 5000) == [8] * 5000


def test_those_who_asked_least_lately_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "_TOKENS", 10)
    kept = Transcripts(new)
    for owner in ("a", "b"):
        kept.remember(owner, "one", [9, 9])
        kept.remember(owner, "two", [9, 9])
    kept.of("a")
    kept.remember("c", "six", [9] * 6)
    assert [known(kept.of("b"), text) for text in ("one", "two")] == [False, False]
    assert [known(kept.of("a"), text) for text in ("one", "two")] == [True, True]
    assert known(kept.of("c"), "six")


def test_what_one_owner_said_tells_nothing_to_another() -> None:
    kept = Transcripts(new)
    kept.remember("a", "secret", [9])
    assert not known(kept.of("b"), "secret")


def test_a_reply_ends_while_it_is_looked_up_what_a_prompt_quotes() -> None:
    """Which may take a rendering of the template; the end of a reply remembers its text."""

    def ends(text: str, at: int) -> bool:
        other = threading.Thread(target=kept.remember, args=("one", [7]))
        other.start()
        other.join(5)
        assert not other.is_alive()
        return at < len(text)

    kept = Transcript(letters, letters, ends)
    kept.remember("begun", [9])
    assert kept.encode("begun!") == [9, ord("!")]
    assert kept.encode("one") == letters("one")


def test_remembering_a_text_again_counts_it_once() -> None:
    kept = Transcripts(new)
    for _ in range(3):
        kept.remember("a", "same", [9, 9, 9])
    assert kept.size == 3
    for n in range(100):
        kept.remember("a", f"{n:03}", [9])
    assert kept.size == 64
