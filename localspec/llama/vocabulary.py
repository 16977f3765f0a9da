"""The vocabulary of a model file: tokens, their texts, and the tokens of a text."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from localspec.core.errors import AuditError
from localspec.llama import library
from localspec.llama.library import c_api

_OF_A_GAP = ("pre", "suf", "mid", "pad", "rep", "sep")


class Vocabulary:
    """The tokens of a loaded model."""

    def __init__(self, vocab: Any) -> None:
        """``vocab`` is the llama_vocab pointer; null for a part of a model, such as a head."""
        self._vocab = vocab
        self._pieces: dict[int, bytes] = {}

    @functools.cached_property
    def n_vocab(self) -> int:
        """V, the width of a row of logits."""
        return int(c_api.llama_vocab_n_tokens(self._vocab))

    @functools.cached_property
    def vocab_type(self) -> int:
        """LLAMA_VOCAB_TYPE_*."""
        return int(c_api.llama_vocab_type(self._vocab))

    @functools.cached_property
    def special_ids(self) -> dict[str, int]:
        """bos, eos, eot, and those of texts with a gap (fim_pre, fim_suf, fim_mid, fim_pad,
        fim_rep, fim_sep), by the file's keys or their usual names; -1 where there is none.
        """
        names = ("bos", "eos", "eot", *(f"fim_{part}" for part in _OF_A_GAP))
        return {name: int(getattr(c_api, f"llama_vocab_{name}")(self._vocab)) for name in names}

    @functools.cached_property
    def adds_bos(self) -> bool:
        """Whether prompts begin with bos."""
        return bool(c_api.llama_vocab_get_add_bos(self._vocab))

    def grammar_vocabulary(self) -> Any:
        """An ``llguidance.LLTokenizer`` with all end tokens. It goes on reading the vocabulary: the
        model must outlive it.

        For 152 000 tokens it takes 1.4 s, during which no other thread of Python runs.
        """
        from llguidance import LLTokenizer

        # llguidance's own function for this calls what llama-cpp-python has deprecated.
        make: Any = LLTokenizer.from_llamacpp  # type: ignore[attr-defined]
        tokenize = ctypes.cast(c_api._lib.llama_tokenize, ctypes.c_void_p).value  # noqa: SLF001
        return make(
            tokens=_tokens(self._vocab, self.n_vocab),
            vocab_ptr=self._vocab,
            tokenize_fptr=tokenize,
            eos_token=sorted(self.end_ids),
        )

    @functools.cached_property
    def end_ids(self) -> frozenset[int]:
        """Every end-of-generation token."""
        return frozenset(i for i in range(self.n_vocab) if c_api.llama_vocab_is_eog(self._vocab, i))

    @functools.cached_property
    def control_texts(self) -> frozenset[str]:
        """Texts that `tokenize` takes for control tokens with ``special`` alone."""
        attributes, vocabulary = library.brief(c_api.llama_vocab_get_attr), self._vocab
        kinds = c_api.LLAMA_TOKEN_ATTR_CONTROL | c_api.LLAMA_TOKEN_ATTR_UNKNOWN
        found = (self.marker(i) for i in range(self.n_vocab) if attributes(vocabulary, i) & kinds)
        return frozenset(filter(None, found))

    def token_text(self, token: int) -> bytes:
        """The vocabulary's raw entry for a token.

        Raises:
            AuditError: there is no such token.
        """
        self._require(token)
        return c_api.llama_vocab_get_text(self._vocab, token) or b""

    def tokenize(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        """Token ids; ``special`` lets markers such as <|im_end|> become their tokens."""
        # Unpaired surrogates cannot be encoded; they replaced bytes that were not UTF-8.
        raw = text.encode("utf-8", "replace")
        size = len(raw) + 8
        while True:
            buffer = (c_api.llama_token * size)()
            n = c_api.llama_tokenize(self._vocab, raw, len(raw), buffer, size, bos, special)
            if n >= 0:
                return list(buffer[:n])
            size = -n

    def piece(self, token: int) -> bytes:
        """The bytes of a token, none for control tokens; may split a character.

        Raises:
            AuditError: there is no such token.
        """
        known = self._pieces.get(token)
        if known is None:
            self._require(token)
            size = 64
            while True:
                buffer = ctypes.create_string_buffer(size)
                n = c_api.llama_token_to_piece(self._vocab, token, buffer, size, 0, False)
                if n >= 0:
                    known = buffer.raw[:n]
                    break
                size = -n
            self._pieces[token] = known
        return known

    def _require(self, token: int) -> None:
        """Refuse an id at which llama.cpp would end the process."""
        if not 0 <= token < self.n_vocab:
            raise AuditError(f"token {token} is outside of the vocabulary of {self.n_vocab}")

    def marker(self, token: int) -> str:
        """A control token as text, for templates; "" for -1."""
        return self.token_text(token).decode("utf-8", "replace") if token >= 0 else ""


_LONGEST = 4096
"""Most bytes of a token that are asked for at first."""
_CONTROL = b"\xff"
"""Stands before the names of tokens that no text is made of: such bytes never occur in text."""


def _tokens(vocabulary: Any, n: int) -> list[bytes]:
    """The bytes of each token; names after `_CONTROL` for control tokens and the like."""
    size, buffer = _LONGEST, ctypes.create_string_buffer(_LONGEST)
    found: list[bytes] = []
    for token in range(n):
        length = c_api.llama_token_to_piece(vocabulary, token, buffer, size, 0, True)
        if length < 0:
            size, buffer = -length, ctypes.create_string_buffer(-length)
            length = c_api.llama_token_to_piece(vocabulary, token, buffer, size, 0, True)
        piece = ctypes.string_at(buffer, length)
        attributes = c_api.llama_vocab_get_attr(vocabulary, token)
        named = attributes & c_api.LLAMA_TOKEN_ATTR_USER_DEFINED and piece[:1] + piece[-1:] == b"<>"
        control = attributes & c_api.LLAMA_TOKEN_ATTR_CONTROL or named
        found.append(_CONTROL + piece if control else piece)
    return found
