"""Vocabularies on which llama.cpp ends the whole process, recognised in the header before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_TEXTS, _KINDS = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
_BYTE = 6
"""LLAMA_TOKEN_TYPE_BYTE: its text is ``<0x0A>``, and llama.cpp reads the two digits."""
_BYTE_TEXT = 3
_DEFAULTS = {"llama": (1, 2), "gpt2": (11, 11), "gemma4": (11, 11)}
"""``tokenizer.ggml.model`` to the ids of bos and eos that llama.cpp takes where none is stated."""


def vocabulary_damage(metadata: Mapping[str, object]) -> str | None:
    """What speaks against the vocabulary in a header; None where nothing does, or there is none."""
    texts = metadata.get(_TEXTS)
    if not isinstance(texts, tuple) or not all(isinstance(text, bytes) for text in texts):
        return None  # llama.cpp refuses it without an abort
    if not texts:
        return None
    return (
        _doubled(texts)
        or _no_byte(texts, metadata.get(_KINDS))
        or _unspelled(metadata, texts)
        or _no_marker(metadata, len(texts))
    )


def _doubled(texts: Sequence[bytes]) -> str | None:
    """Two entries of the same text, as llama.cpp reads them: up to the first zero byte."""
    if len(set(texts)) == len(texts) and not any(b"\0" in text or not text for text in texts):
        return None
    seen: dict[bytes, int] = {}
    for token, text in enumerate(texts):
        read = text.split(b"\0", 1)[0] or b"[EMPTY_%d]" % token
        if read in seen:
            return f"its tokens {seen[read]} and {token} have the same text"
        seen[read] = token
    return None


def _no_byte(texts: Sequence[bytes], kinds: object) -> str | None:
    if not isinstance(kinds, tuple) or _BYTE not in kinds:
        return None
    for token, (text, kind) in enumerate(zip(texts, kinds, strict=False)):
        if kind == _BYTE and len(text.split(b"\0", 1)[0]) < _BYTE_TEXT:
            return f"its token {token} should be a byte and is not"
    return None


def _unspelled(metadata: Mapping[str, object], texts: Sequence[bytes]) -> str | None:
    """A byte that a SentencePiece vocabulary has no token for: any text may hold it."""
    if metadata.get("tokenizer.ggml.model") != "llama":
        return None
    known = set(texts)
    for byte in range(256):
        if b"<0x%02X>" % byte not in known and bytes([byte]) not in known:
            return f"its vocabulary has no token for the byte 0x{byte:02x}"
    return None


def _no_marker(metadata: Mapping[str, object], n: int) -> str | None:
    """A text is to begin with bos, or to end with eos, and there is no such token."""
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
            return f"it wants {name} added to texts, and has no such token"
    return None


__all__ = ["vocabulary_damage"]
