"""Text leaves in whole characters, and nothing of a stop string ever shows."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.core.errors import ContextError, UnsupportedModelError, UsageError
from localspec.core.events import Message
from localspec.generation.chat_template import PLAIN_TEMPLATE, Template
from localspec.generation.fitting import fit
from localspec.generation.stop_condition import TextStream
from localspec.generation.transcripts import Transcript


def pieces(raw: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(raw), *(c % (len(raw) + 1) for c in cuts)})
    return [raw[a:b] for a, b in itertools.pairwise(edges)]


@given(st.text(), st.lists(st.integers(0, 1000)))
def test_any_split_of_the_bytes_gives_the_text(text: str, cuts: list[int]) -> None:
    stream = TextStream()
    shown = [stream.feed(p) for p in pieces(text.encode("utf-8", "replace"), cuts)]
    shown.append(stream.finish())
    assert "".join(shown) == text.encode("utf-8", "replace").decode()
    assert stream.text == "".join(shown)


@given(
    st.text("abc\n", max_size=30),
    st.lists(st.text("abc\n", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(0, 100)),
)
def test_the_first_stop_string_ends_the_text(text: str, stop: list[str], cuts: list[int]) -> None:
    """However the text is cut into tokens; what was shown earlier never has to be taken back."""
    stream = TextStream(stop)
    shown = ""
    for piece in pieces(text.encode(), cuts):
        shown += stream.feed(piece)
        if stream.stopped:
            break
    shown += stream.finish()
    ends = [i for s in stop if (i := text.find(s)) >= 0]
    if not ends:
        assert shown == text
    else:
        assert stream.stopped
        # A stop string that ends first may hide one that begins earlier but ends later.
        assert text.startswith(shown)
        assert any(text.startswith(s, len(shown)) for s in stop)


def test_bytes_that_are_no_utf8_are_replaced_not_lost() -> None:
    stream = TextStream()
    assert stream.feed(b"a\xff\xe2\x82") + stream.finish() == "a��"


WORDS = Transcript(lambda t: [len(w) for w in t.split()], lambda t: [len(w) for w in t.split()])
TEMPLATE = Template(PLAIN_TEMPLATE, bos="", eos="")


def words(n: int, role: str = "user") -> Message:
    return Message(role, " ".join(["word"] * n))


def test_an_unfinished_reply_ends_the_prompt() -> None:
    asked = [Message("user", "Hello"), Message("assistant", "Once upon")]
    assert TEMPLATE.render(asked) == TEMPLATE.render(asked[:1]) + "Once upon"
    assert TEMPLATE.render([asked[0], Message("assistant", "")]) == TEMPLATE.render(asked[:1])
    with pytest.raises(UsageError, match="a thought, which cannot be continued"):
        TEMPLATE.render([asked[0], Message("assistant", "", "Hm.")])


def test_a_conversation_that_fits_is_left_alone() -> None:
    messages = [words(5), words(5, "assistant"), words(5)]
    prompt = fit(messages, TEMPLATE, WORDS.encode, 100, 20)
    assert prompt.dropped == 0
    assert prompt.text.count("User:") == 2


def test_the_oldest_turns_go_first_and_the_system_message_stays() -> None:
    messages = [words(3, "system"), words(30), words(30, "assistant"), words(9), words(9)]
    prompt = fit(messages, TEMPLATE, WORDS.encode, 60, 10)
    assert prompt.dropped == 2
    assert prompt.text.startswith("System:")
    assert prompt.text.count("User:") == 2
    assert "Assistant: word" not in prompt.text


def test_a_long_chat_is_cut_in_few_looks() -> None:
    looks = 0

    def encode(text: str) -> list[int]:
        nonlocal looks
        looks += 1
        return WORDS.encode(text)

    chat = [words(3, "assistant" if i % 2 else "user") for i in range(999)]
    prompt = fit(chat, TEMPLATE, encode, 50, 10)
    longer = fit(chat[prompt.dropped - 8 :], TEMPLATE, WORDS.encode, 50, 10)
    assert longer.dropped > 0
    assert len(prompt.tokens) <= 40
    assert looks < 15


def test_the_cut_stays_where_it_is_for_some_turns() -> None:
    """So the next turn begins with what the KV cache holds."""
    chat, cuts = [], []
    for _ in range(40):
        chat += [words(5), words(5, "assistant")]
        prompt = fit([*chat, words(5)], TEMPLATE, WORDS.encode, 200, 20)
        assert len(prompt.tokens) + 20 <= 200
        cuts.append(prompt.dropped)
    assert cuts == sorted(cuts)
    assert len(set(cuts)) <= 12


def test_one_message_too_long_is_refused_with_numbers() -> None:
    with pytest.raises(ContextError, match=r"102 tokens.*context size of 50"):
        fit([words(100)], TEMPLATE, WORDS.encode, 50, 10)


def test_a_system_prompt_too_long_is_not_called_a_message_that_is() -> None:
    with pytest.raises(ContextError, match="the system prompt does not fit: with the message"):
        fit([words(60, "system"), words(5)], TEMPLATE, WORDS.encode, 50, 10)


def test_a_reply_that_cannot_go_on_is_not_called_a_message_that_is_too_long() -> None:
    with pytest.raises(ContextError, match="the reply cannot continue: with its question it has"):
        fit([words(5), words(60, "assistant")], TEMPLATE, WORDS.encode, 50, 10)


def test_a_last_message_that_fits_alone_is_kept_though_the_reserve_is_not() -> None:
    prompt = fit([words(5), words(40)], TEMPLATE, WORDS.encode, 50, 25)
    assert prompt.dropped == 1


def test_nothing_to_answer_is_refused() -> None:
    with pytest.raises(UsageError, match="no message"):
        fit([], TEMPLATE, WORDS.encode, 50, 10)


def test_a_template_cannot_reach_the_system() -> None:
    evil = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(UsageError, match="refuses"):
        Template(evil, bos="", eos="").render([words(1)])


def test_a_broken_template_is_named() -> None:
    with pytest.raises(UnsupportedModelError, match="template is broken"):
        Template("{% for %}", bos="", eos="")


def test_a_template_may_refuse() -> None:
    with pytest.raises(UsageError, match="roles must alternate"):
        Template("{{ raise_exception('roles must alternate') }}", bos="", eos="").render([words(1)])


@pytest.mark.parametrize(
    "source",
    ["{{ 1 // 0 }}", "{{ range(99999999) }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"],
)
def test_a_template_that_fails_refuses(source: str) -> None:
    with pytest.raises(UsageError, match="template refuses"):
        Template(source, bos="", eos="").render([words(1)])


def test_a_template_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="gives an empty prompt"):
        fit([words(1)], Template("{# #}", bos="", eos=""), WORDS.encode, 50, 10)
