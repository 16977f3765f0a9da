"""The vocabulary in a GGUF header, and whether a draft model has the target's.

Missing values have the same defaults as in llama.cpp, so that the check before a download gives the
same result as the check at load.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Protocol

from localspec.core import drafter_registry
from localspec.core.drafter_registry import Family
from localspec.core.errors import UnsupportedModelError
from localspec.models.compat.head_checks import FOREIGN
from localspec.models.gguf.header import Header

_KINDS = {"llama": 1, "gpt2": 2, "gemma4": 2, "bert": 3, "t5": 4, "rwkv": 5, "plamo2": 6}
"""``tokenizer.ggml.model`` to LLAMA_VOCAB_TYPE_*."""
_SPM, _BPE, _WPM = 1, 2, 3
_DEFAULT_IDS = {_SPM: {"bos": 1, "eos": 2}, _BPE: {"bos": 11, "eos": 11}, _WPM: {"bos": 101}}
_BPE_WITH_BOS = frozenset(
    {
        *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0"),
        *("lfm2", "tekken", "chameleon"),
    }
)
"""Pre-tokenizers that start a text with bos where the header does not say so."""
_ENDS_OF_TURN = (
    *(b"<|eot_id|>", b"<|im_end|>", b"<|end|>", b"<end_of_turn>", b"<|endoftext|>"),
    *(b"<|end_of_text|>", b"< EOT >", b"_<EOT>", "<｜end▁of▁sentence｜>".encode()),
    *(b"<end_of_utterance>", b"<turn|>"),
)
"""Texts by which llama.cpp finds the end-of-turn token where the header does not name it."""
_NOT_ALONE = frozenset(
    {"clip", *FOREIGN, *(spec.file for spec in drafter_registry.of(Family.HEAD))}
)
RANK_POOLING = 4
"""The pooling of rerankers."""
NO_POOLING = frozenset({0, -1, 0xFFFFFFFF})
"""LLAMA_POOLING_TYPE_NONE and _UNSPECIFIED; files that llama.cpp saved have the latter unsigned."""
_PARTS = frozenset({"mmproj", "imatrix", "adapter"})

MAX_SIZE_DIFFERENCE = 128
"""Entries; vocabularies of a family are padded to different multiples. llama.cpp's limit."""


@dataclass(frozen=True)
class HeaderVocabulary:
    """Implements `localspec.models.compat.header_vocabulary.Vocabulary` from a header."""

    header: Header

    @property
    def vocab_type(self) -> int:
        """LLAMA_VOCAB_TYPE_*; -1 for an unknown kind."""
        return _KINDS.get(self.header.text("tokenizer.ggml.model") or "", -1)

    @property
    def n_vocab(self) -> int:
        """Entries, padding included."""
        return self.header.n_vocab

    @functools.cached_property
    def special_ids(self) -> dict[str, int]:
        """Ids of bos, eos and eot; -1 for a missing one."""
        defaults = _DEFAULT_IDS.get(self.vocab_type, {})
        found = {}
        for name in ("bos", "eos", "eot"):
            stated = self.header.integer(f"tokenizer.ggml.{name}_token_id")
            known = stated if stated is not None else defaults.get(name, -1)
            found[name] = known if 0 <= known < self.n_vocab else -1
        if found["eot"] < 0:
            found["eot"] = self._end_of_turn()
        return found

    def _end_of_turn(self) -> int:
        ids = {text: i for i, text in enumerate(self.header.tokens)}
        return next((ids[text] for text in _ENDS_OF_TURN if text in ids), -1)

    @property
    def adds_bos(self) -> bool:
        """Whether a text starts with bos."""
        stated = self.header.metadata.get("tokenizer.ggml.add_bos_token")
        if isinstance(stated, bool):
            return stated
        if self.vocab_type == _BPE:
            return self.header.text("tokenizer.ggml.pre") in _BPE_WITH_BOS
        return self.vocab_type in {_SPM, _WPM}

    def token_text(self, token: int) -> bytes:
        """The vocabulary's raw entry for a token."""
        return self.header.tokens[token]


def require_text_model(header: Header) -> None:
    """Check that a valid file is a language model that can chat.

    Raises:
        UnsupportedModelError: it is a part of a model, an embedding model, or has no vocabulary.
    """
    name, arch = header.name, header.architecture
    if arch in _NOT_ALONE or arch.endswith("-assistant") or header.text("general.type") in _PARTS:
        raise UnsupportedModelError(
            f"{name} is a part of a model ({arch}), a head or a projector; it cannot run alone"
        )
    causal = header.metadata.get(f"{arch}.attention.causal", True)
    pooling = header.integer(f"{arch}.pooling_type") or 0
    if causal is False or pooling not in NO_POOLING:
        raise UnsupportedModelError(
            f"{name} is an embedding model ({arch}); it turns text into vectors and cannot write "
            "any: choose a chat model, and give this one to `serve --embedding`"
        )
    if not header.tokens or not header.tensors:
        raise UnsupportedModelError(
            f"{name} ({arch}) holds no vocabulary of its own: it is not a text model that can "
            "run alone"
        )


def end_tokens(header: Header) -> list[bytes]:
    """Texts of the tokens that end a reply, by the header."""
    ids = HeaderVocabulary(header).special_ids
    found = {ids[name] for name in ("eos", "eot") if ids[name] >= 0}
    known = {text: i for i, text in enumerate(header.tokens)}
    found |= {known[text] for text in _ENDS_OF_TURN if text in known}
    return [header.tokens[i] for i in sorted(found)]


def unsplit(header: Header) -> str | None:
    """A notice where the header does not say how texts are split before they become tokens; None
    where it does, or where the vocabulary needs no such rule.
    """
    if header.text("tokenizer.ggml.model") != "gpt2" or header.text("tokenizer.ggml.pre"):
        return None
    return (
        f"{header.name} does not say how texts are split into words (tokenizer.ggml.pre), so "
        "llama.cpp splits them by its default and results may be worse; use a newer conversion of "
        "the model"
    )


class Vocabulary(Protocol):
    """A vocabulary, as the checks read it."""

    @property
    def vocab_type(self) -> int: ...
    @property
    def n_vocab(self) -> int: ...
    @property
    def special_ids(self) -> dict[str, int]: ...
    @property
    def adds_bos(self) -> bool: ...
    def token_text(self, token: int) -> bytes: ...


def ids_mismatch(target: Vocabulary, draft: Vocabulary) -> str | None:
    """Why the draft's ids do not denote the same tokens as the target's; None if they do.

    Type, size (padding apart) and the text of every shared id must be equal.
    """
    if target.vocab_type != draft.vocab_type:
        return (
            f"the tokenizers are of different kinds (type {target.vocab_type} in the target, "
            f"{draft.vocab_type} in the draft)"
        )
    shared = min(target.n_vocab, draft.n_vocab)
    for token in range(shared):
        wanted, found = target.token_text(token), draft.token_text(token)
        if wanted != found:
            return (
                f"the vocabularies differ from id {token} on: {_show(wanted)} in the target, "
                f"{_show(found)} in the draft"
            )
    if abs(target.n_vocab - draft.n_vocab) > MAX_SIZE_DIFFERENCE:
        return f"the vocabularies have {target.n_vocab} and {draft.n_vocab} entries"
    return None


def vocabulary_mismatch(target: Vocabulary, draft: Vocabulary) -> str | None:
    """Why a model does not tokenize texts as the target does; None if it does.

    bos and eos must be equal too.
    """
    mismatch = ids_mismatch(target, draft)
    if mismatch is not None:
        return mismatch
    if target.adds_bos != draft.adds_bos:
        return "one of them starts every text with bos, the other does not"
    # A bos that neither adds is often missing in one header. eot is not compared: where a header
    # states none, llama.cpp picks one by the order of a hash table.
    for name in ("bos", "eos") if target.adds_bos else ("eos",):
        ours, theirs = target.special_ids[name], draft.special_ids[name]
        if ours != theirs:
            return f"{name} is id {ours} in the target and {theirs} in the draft"
    return None


def _show(text: bytes) -> str:
    return repr(text.decode("utf-8", "replace"))
