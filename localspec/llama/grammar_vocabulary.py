"""A model's vocabulary for llguidance."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import llama_cpp.llama_cpp as c_api

_LONGEST = 4096
"""Most bytes of a token that are asked for at first."""
_CONTROL = b"\xff"
"""Stands before the names of tokens that no text is made of: such bytes never occur in text."""


def grammar_vocabulary(vocabulary: Any, end_ids: Iterable[int]) -> Any:
    """An ``llguidance.LLTokenizer`` of a vocabulary of llama.cpp, with all its end tokens.

    It goes on reading ``vocabulary``, which must outlive it. For 152 000 tokens it takes 1.4 s,
    during which no other thread of Python runs.
    """
    from llguidance import LLTokenizer

    # llguidance's own function for this calls what llama-cpp-python has deprecated.
    make: Any = LLTokenizer.from_llamacpp  # type: ignore[attr-defined]
    n = c_api.llama_vocab_n_tokens(vocabulary)
    tokenize = ctypes.cast(c_api._lib.llama_tokenize, ctypes.c_void_p).value  # noqa: SLF001
    return make(
        tokens=_tokens(vocabulary, n),
        vocab_ptr=vocabulary,
        tokenize_fptr=tokenize,
        eos_token=sorted(end_ids),
    )


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
