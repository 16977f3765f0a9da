"""Recognises vocabularies on which llama.cpp aborts the process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_TEXTS, _KINDS = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
_BYTE = 6
"""LLAMA_TOKEN_TYPE_BYTE: its text is like ``<0x0A>``, and llama.cpp reads the two digits."""
_BYTE_TEXT = 3
_DEFAULTS = {"llama": (1, 2), "gpt2": (11, 11), "gemma4": (11, 11)}
"""``tokenizer.ggml.model`` to the ids of bos and eos that llama.cpp takes where none is stated."""


def vocabulary_damage(metadata: Mapping[str, object]) -> str | None:
    """Why the vocabulary in a header is invalid; None if it is valid or missing."""
    texts = metadata.get(_TEXTS)
    if not isinstance(texts, tuple) or not all(isinstance(text, bytes) for text in texts):
        return None  # llama.cpp refuses it without an abort
    if not texts:
        return None
    return (
        _duplicate(texts)
        or _invalid_byte_token(texts, metadata.get(_KINDS))
        or _missing_byte(metadata, texts)
        or _missing_special_token(metadata, len(texts))
    )


def _duplicate(texts: Sequence[bytes]) -> str | None:
    """Two entries with the same text up to the first zero byte, where llama.cpp stops reading."""
    if len(set(texts)) == len(texts) and not any(b"\0" in text or not text for text in texts):
        return None
    seen: dict[bytes, int] = {}
    for token, text in enumerate(texts):
        read = text.split(b"\0", 1)[0] or b"[EMPTY_%d]" % token
        if read in seen:
            return f"its tokens {seen[read]} and {token} have the same text"
        seen[read] = token
    return None


def _invalid_byte_token(texts: Sequence[bytes], kinds: object) -> str | None:
    if not isinstance(kinds, tuple) or _BYTE not in kinds:
        return None
    for token, (text, kind) in enumerate(zip(texts, kinds, strict=False)):
        if kind == _BYTE and len(text.split(b"\0", 1)[0]) < _BYTE_TEXT:
            return f"its token {token} should be a byte and is not"
    return None


def _missing_byte(metadata: Mapping[str, object], texts: Sequence[bytes]) -> str | None:
    """A byte without a token in a SentencePiece vocabulary; any text may contain it."""
    if metadata.get("tokenizer.ggml.model") != "llama":
        return None
    known = set(texts)
    for byte in range(256):
        if b"<0x%02X>" % byte not in known and bytes([byte]) not in known:
            return f"its vocabulary has no token for the byte 0x{byte:02x}"
    return None


def _missing_special_token(metadata: Mapping[str, object], n: int) -> str | None:
    """bos or eos must be added to texts, and does not exist."""
    model = metadata.get("tokenizer.ggml.model")
    defaults = _DEFAULTS.get(model if isinstance(model, str) else "")
    if defaults is None:
        return None
    usually = (model == "llama", False)
    for name, default, usual in zip(("bos", "eos"), defaults, usually, strict=True):
        added = metadata.get(f"tokenizer.ggml.add_{name}_token", usual)
        stated = metadata.get(f"tokenizer.ggml.{name}_token_id")
        known = default < n or (isinstance(stated, int) and 0 <= stated < n)
        if added is True and not known:
            return f"it requires {name} in front of texts, and has no such token"
    return None
