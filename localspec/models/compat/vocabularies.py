"""Checks whether a draft model has the target's vocabulary."""

from __future__ import annotations

from typing import Protocol

MAX_SIZE_DIFFERENCE = 128
"""Entries; vocabularies of a family are padded to different multiples. llama.cpp's limit."""


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
