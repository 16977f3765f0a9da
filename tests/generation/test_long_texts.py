"""Huge texts: refused before they are split, rendered elsewhere, and searched in short steps."""

from __future__ import annotations

import random
import re

import pytest

from localspec.core.errors import ContextError, Interrupted, UsageError
from localspec.core.events import Message
from localspec.core.files.paths import DEMO_DIR
from localspec.core.infill import MOST_CHUNKS, Chunk, Infill
from localspec.core.reply_request import MOST_STOP, MOST_STOPS, ReplyRequest, Tokenized
from localspec.core.sampling_params import MOST_BIASES, Sampling
from localspec.engine import protocol
from localspec.engine.messages import TokenizedEvent
from localspec.generation import fitting, quoting
from localspec.generation.chat_template import Template
from localspec.generation.fitting import fit
from localspec.generation.infill import InfillPrompts
from localspec.generation.prompt import PromptBuilder
from localspec.generation.quoting import Quoting
from localspec.generation.stop_condition import TextStream
from localspec.generation.tokenizing import MOST_BYTES, tokenized
from localspec.llama.model import Model

HUGE = "a b " * 1_000_000
TEMPLATE = Template("{% for m in messages %}{{ m.content }}{% endfor %}", bos="", eos="")


class Words:
    """A token for each word; notes the longest text that it was given."""

    def __init__(self) -> None:
        self.longest = 0
        self.characters = 0

    def encode(self, text: str) -> list[int]:
        self.longest = max(self.longest, len(text))
        self.characters += len(text)
        return [1] * len(text.split())


def test_a_message_that_is_far_too_long_is_not_split_whole() -> None:
    words = Words()
    with pytest.raises(ContextError, match=r"too long: .* at least \d+ tokens"):
        fit([Message("user", HUGE)], TEMPLATE, words.encode, 1000, 100)
    assert words.longest <= fitting._PART
    assert words.characters <= 4 * fitting._PART


def test_old_turns_that_are_far_too_long_are_left_out_as_ever() -> None:
    chat = [Message("user", HUGE), Message("assistant", "ok"), Message("user", "now this")]
    words = Words()
    prompt = fit(chat, TEMPLATE, words.encode, 1000, 100)
    assert prompt.text == "now this"
    assert prompt.dropped == 2
    assert words.longest <= fitting._PART


def test_a_long_text_that_fits_is_split_whole() -> None:
    text = "abcdefgh" * 40_000 + " end"
    prompt = fit([Message("user", text)], TEMPLATE, lambda t: [1] * (len(t) // 800), 1000, 100)
    assert len(prompt.tokens) == len(text) // 800


def test_a_raw_prompt_is_refused_alike() -> None:
    prompts = PromptBuilder(Model(DEMO_DIR / "target.gguf"), 1000)
    with pytest.raises(ContextError, match=r"the prompt has at least \d+ tokens"):
        prompts.bare(HUGE)


def test_a_template_that_could_write_much_runs_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    def ask(self: Template, request: dict[str, object], *_: object) -> dict[str, object]:
        asked.append(request)
        return {"refused": "it makes a prompt of 900 million characters"}

    monkeypatch.setattr(Template, "_ask", ask)
    source = "{% for m in messages %}" + "{{ m.content }}" * 1000 + "{% endfor %}"
    many = Template(source, bos="", eos="")
    assert many.render([Message("user", "short")]) == "short" * 1000
    assert not asked
    with pytest.raises(UsageError, match="900 million"):
        many.render([Message("user", "a" * 900_000)])
    assert len(asked) == 1
    joined = Template("{{ " + " ~ ".join(["messages[0].content"] * 800) + " }}", bos="", eos="")
    with pytest.raises(UsageError, match="900 million"):
        joined.render([Message("user", "a" * 900_000)])
    wordy = "{% for m in messages %}" + "a" * 16_000 + "{{ m.content }}{% endfor %}"
    with pytest.raises(UsageError, match="900 million"):
        Template(wordy, bos="", eos="").render([Message("user", "")] * 700)


CONTROLS = ["<s>", "<|a|>", "<|ab|>", "|><", "<|reserved_token_17|>", "x"]


@pytest.mark.parametrize("window", [1, 2, 3, 7, 2048])
def test_control_tokens_are_found_in_steps_as_at_once(
    window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quoting, "_WINDOW", window)
    one = Quoting(CONTROLS, lambda *_, **__: [])
    spelled = sorted((re.escape(text) for text in CONTROLS if len(text) > 1), key=len)
    at_once = re.compile("|".join(reversed(spelled)))
    for text in (
        "",
        "<s><s>",
        "<|a|><|ab|><s",
        "a<|ab|>b<|reserved_token_17|><|reserved_token_17|",
        "<|a<|ab|><s>|>" * 9,
        "<" * 20 + "s>" * 20,
    ):
        assert [*one._spelled(text)] == [m.span() for m in at_once.finditer(text)]
        broken = one._broken(text)
        assert not at_once.search(broken)
        assert quoting.plain(broken) == text


def test_no_step_of_the_search_takes_a_text_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Quoting(CONTROLS, lambda *_, **__: [])
    steps: list[int] = []
    pattern = one._controls
    assert pattern is not None

    class Noted:
        def search(self, text: str, at: int, end: int) -> object:
            steps.append(min(end, len(text)) - at)
            return pattern.search(text, at, end)

    one._controls = Noted()  # type: ignore[assignment]
    one._broken("<|reserved_token_" * 50_000)
    assert max(steps) <= quoting._WINDOW + max(map(len, CONTROLS))


def test_a_text_whose_tokens_are_asked_for_has_a_limit() -> None:
    model = Model(DEMO_DIR / "target.gguf")
    parts = model, PromptBuilder(model, 1000), InfillPrompts(model, 1000)
    longest = max(range(model.n_vocab), key=lambda token: len(model.piece(token)))
    many = MOST_BYTES // len(model.piece(longest)) + 1
    for asked in (
        ReplyRequest(prompt="a" * (MOST_BYTES + 1)),
        ReplyRequest(prompt="\U0001f600" * (MOST_BYTES // 4 + 1)),  # four tokens each
        ReplyRequest((Message("user", "é" * (MOST_BYTES // 2)),)),  # with what the template adds
        ReplyRequest(prompt_tokens=(longest,) * many),
    ):
        with pytest.raises(UsageError, match="send it in parts"):
            tokenized(asked, *parts, special=True, bos=True)
        with pytest.raises(Interrupted):  # before any work
            tokenized(asked, *parts, lambda: True, special=True, bos=True)


@pytest.mark.parametrize(
    ("text", "piece"), [("\x01", "\x01"), ("\U0001f600" * 2, "\udcf0"), ("a", "a")]
)
def test_the_longest_answer_fits_into_a_message(text: str, piece: str) -> None:
    n = MOST_BYTES
    shown = text * (n // len(text.encode()))
    event = TokenizedEvent(1, Tokenized(shown, (262_143,) * n, (piece,) * n))
    assert protocol.decode_event(protocol.sendable(event)) == event


def test_stop_texts_have_a_limit_together() -> None:
    ReplyRequest(prompt="a", stop=("b" * MOST_STOP,))
    with pytest.raises(UsageError, match="stop texts have"):
        ReplyRequest(prompt="a", stop=("b" * MOST_STOP, "c"))
    ReplyRequest(prompt="a", stop=("b",) * MOST_STOPS)
    with pytest.raises(UsageError, match="65 stop texts"):
        ReplyRequest(prompt="a", stop=("b",) * (MOST_STOPS + 1))


def test_biases_and_pieces_of_files_have_a_limit_wherever_they_come_from() -> None:
    Sampling(logit_bias=((5, 0.5),) * MOST_BIASES)
    with pytest.raises(UsageError, match="8193 tokens"):
        Sampling(logit_bias=((5, 0.5),) * (MOST_BIASES + 1))
    Infill("a", "b", extra=(Chunk("c", "d"),) * MOST_CHUNKS)
    with pytest.raises(UsageError, match="4097 pieces"):
        Infill("a", "b", extra=(Chunk("c", "d"),) * (MOST_CHUNKS + 1))


@pytest.mark.parametrize(
    "stop", [("aab",), ("ab", "bca"), ("aaaa", "aab"), ("ba" * 9 + "c",), ("abcabd", "cab")]
)
def test_text_is_held_back_as_far_as_it_may_begin_a_stop_text(stop: tuple[str, ...]) -> None:
    chance = random.Random(1)
    for _ in range(200):
        text = "".join(chance.choices("abc", k=chance.randint(1, 30)))
        stream = TextStream(stop)
        shown = "".join(stream.feed(piece.encode()) for piece in text)
        ends = [at for one in stop if (at := text.find(one)) >= 0]
        seen = text[: min(ends)] if ends else text
        tails = [seen[len(seen) - n :] for n in range(len(seen) + 1)]
        begun = max(len(tail) for tail in tails if any(one.startswith(tail) for one in stop))
        assert shown == (seen if ends else seen[: len(seen) - begun])
        assert shown + stream.finish() == seen
