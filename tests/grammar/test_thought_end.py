"""The grammar begins where the reader of a reply sees the end of its thinking, also where the
marker is plain text, which a vocabulary splits in many ways.
"""

from __future__ import annotations

from typing import cast

import llguidance
import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from localspec.core.events import ReplyFormat
from localspec.core.grammar_spec import GrammarSpec
from localspec.generation.grammars import Grammars
from localspec.generation.runnable import RunnableModel
from localspec.grammar.compiling import compiled
from localspec.grammar.matching import GrammarMatcher
from localspec.grammar.reply_parts import WholeReply
from localspec.grammar.reply_reader import ReplyParser
from localspec.grammar.thinking import Thinking, thinking
from localspec.grammar.thought_end import ThoughtEnd

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""That of Qwen2 and Llama 3: ``>`` and the lines behind it are one piece."""
MERGES = [
    *[("<", "/"), ("t", "h"), ("th", "i"), ("thi", "n"), ("thin", "k"), ("Ċ", "Ċ"), (">", "ĊĊ")],
    *[("e", "s"), ("y", "es"), ("n", "o"), (">", "{"), (">", "y"), ("k", ">"), ("k>", "n")],
    *[("k>", "Ċ"), (">", "Ġ"), ("</", "think"), ("</think", ">"), ("</think>", "no")],
]
MARKERS = ("<think>", "</think>")
TEMPLATE = "<|assistant|><think>\n ... </think>"
CHOICE = GrammarSpec.choice(("yes", "no"))


class Merged:
    """A model with that pattern, in whose vocabulary the marker is no token of its own."""

    template = TEMPLATE

    def __init__(self) -> None:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        self.vocabulary = {c: i for i, c in enumerate(alphabet)}
        for a, b in MERGES:
            self.vocabulary[a + b] = len(self.vocabulary)
        self._tokenizer = Tokenizer(models.BPE(self.vocabulary, MERGES[:7]))
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(PATTERN), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        self._tokenizer.decoder = decoders.ByteLevel()
        self._tokenizer.add_special_tokens(["<|end|>"])
        self.n_vocab = self._tokenizer.get_vocab_size()
        self.end = self.n_vocab - 1
        self.end_ids = frozenset({self.end})
        self._names = {i: text for text, i in self.vocabulary.items()}

    def grammar_vocabulary(self) -> llguidance.LLTokenizer:
        return llguidance.LLTokenizer(
            self._tokenizer.to_str(), n_vocab=self.n_vocab, eos_token=self.end
        )

    def tokenize(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def piece(self, token: int) -> bytes:
        said = self._names.get(token, "")
        return said.replace("Ċ", "\n").replace("Ġ", " ").encode()

    def marker(self, token: int) -> str:
        return "<|end|>" if token == self.end else ""


@pytest.fixture(scope="module")
def merged() -> Merged:
    return Merged()


@pytest.fixture(scope="module")
def grammars(merged: Merged) -> Grammars:
    return Grammars(cast("RunnableModel", merged))


def followed(merged: Merged, grammars: Grammars) -> GrammarMatcher:
    """A matcher of the choice behind a thinking that the prompt began."""
    return GrammarMatcher(
        grammars._vocabulary,
        compiled(CHOICE),
        CHOICE.kind,
        start=0,
        n_vocab=merged.n_vocab,
        end_ids=merged.end_ids,
        thinking=grammars._thinking("<|assistant|><think>\n"),
    )


def emitted(matcher: GrammarMatcher, tokens: list[int]) -> bool:
    """Whether all of these are allowed, and taken."""
    for n, token in enumerate(tokens):
        mask = matcher.mask(tokens[:n])
        assert mask is not None
        if not mask.allows_token(token):
            return False
        matcher.take(tokens[: n + 1])
    return True


def test_a_marker_whose_last_token_holds_the_next_lines_ends_the_thinking(merged, grammars) -> None:
    one, text = followed(merged, grammars), "Hm, <b> I think.\n</think>\n\n"
    tokens = merged.tokenize(text)
    assert merged.piece(tokens[-1]) == b">\n\n"
    assert emitted(one, tokens)
    mask = one.mask(tokens)
    assert not mask.allows_token(merged.end)
    assert mask.count < 8
    assert one.forced(tokens) == []
    tokens.append(merged.vocabulary["yes"])
    assert one.take(tokens)
    assert one.complete
    parser = ReplyParser(ReplyFormat(MARKERS, thinks=True))
    parts = [part for token in tokens for part in parser.feed(merged.piece(token).decode())]
    assert WholeReply.of([*parts, *parser.finish()]).content == "yes"


@pytest.mark.parametrize(
    ("said", "last", "allowed"),
    [
        (["</", "think"], ">", True),
        (["</", "think"], ">ĊĊ", True),
        (["</", "think"], ">Ġ", True),
        (["</", "think"], ">{", False),
        (["</", "think"], ">y", False),
        (["</", "thin"], "k>Ċ", True),
        (["</", "thin"], "k>n", False),
        (["a"], "</think>", True),
        (["a"], "</think>no", False),
        (["<", "/", "t", "h", "i", "n", "k"], ">y", False),
        (["think"], ">y", True),  # no marker
        (["<", "thin"], "k>n", True),
    ],
)
def test_a_token_that_completes_the_marker_goes_on_with_white_space_alone(
    said: list[str], last: str, allowed: bool, merged, grammars
) -> None:
    tokens = [merged.vocabulary[text] for text in (*said, last)]
    one = followed(merged, grammars)
    assert one.legal([], tokens) == len(tokens) - (not allowed)  # as a draft
    assert emitted(one, tokens) == allowed


def test_the_prompt_alone_does_not_end_a_thinking(merged, grammars) -> None:
    """A marker that ends before the reply, or that its first tokens complete, is none of it."""
    end = ThoughtEnd("</think>", merged)
    tokens = [merged.vocabulary[text] for text in ("</", "think", ">", "</", "think", ">ĊĊ")]
    assert end.place(tokens, 2, 2) == 6
    assert end.place(tokens[:5], 2, 2) is None
    assert [end.place(tokens, 3, searched) for searched in range(3, 7)] == [6, 6, 6, None]


def test_control_tokens_of_a_marker_are_found_by_their_names() -> None:
    class Channels:
        names = ("<|channel|>", "<|message|>")

        def piece(self, token: int) -> bytes:
            return b"" if token < 2 else (b"final", b"analysis", b"Hm")[token - 2]

        def marker(self, token: int) -> str:
            return self.names[token]

        def tokenize(self, text: str, *, special: bool = False) -> list[int]:
            assert special
            return [0, 2, 1]

    harmony = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
    channels = Channels()
    found = thinking(
        "".join(harmony),
        "<|start|>assistant",
        lambda _: [0, 3, 1],
        lambda marker: ThoughtEnd(marker, channels),
    )
    assert isinstance(found, Thinking)
    assert found.end([0, 3, 1, 4, 0, 2, 1, 4], 0, 0) == 7
    assert found.end([0, 2, 1], 0, 0) == 3
    assert found.end([4], 0, 0) == 0
