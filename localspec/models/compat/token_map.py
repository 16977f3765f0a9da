"""Maps tokens between vocabularies by their bytes, for drafting across vocabularies.

It needs headers only, so `pull` and `show` know what `run` will do.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np

from localspec.core.values import Ids
from localspec.models.compat.header_vocabulary import Vocabulary, vocabulary_mismatch

ENOUGH = 0.9
"""Share of the smaller vocabulary that must be common; below it drafts are seldom accepted."""
_SPM, _BPE = 1, 2
_SPACE = "\u2581"


@functools.cache
def _bytes_of_characters() -> dict[str, int]:
    """GPT-2's characters for bytes: printable bytes are themselves, the others start at 256."""
    printing = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printing]
    return {chr(b): b for b in printing} | {chr(256 + i): b for i, b in enumerate(others)}


def _byte_token(vocab_type: int, text: bytes) -> int | None:
    """The byte that a SentencePiece token such as <0x0A> encodes."""
    if vocab_type != _SPM or len(text) != 6 or not text.startswith(b"<0x"):
        return None
    try:
        return int(text[3:5], 16)
    except ValueError:
        return None


def meaning(vocab_type: int, text: bytes) -> bytes:
    """The bytes of a token; those of a control token spell its name."""
    byte = _byte_token(vocab_type, text)
    if byte is not None:
        return bytes([byte])
    if vocab_type == _SPM:
        return (
            text.decode("utf-8", "surrogateescape")
            .replace(_SPACE, " ")
            .encode("utf-8", "surrogateescape")
        )
    if vocab_type == _BPE:
        spelled = [_bytes_of_characters().get(c) for c in text.decode("utf-8", "replace")]
        if None not in spelled:
            return bytes(b for b in spelled if b is not None)
    return text


@dataclass(frozen=True)
class TokenMap:
    """Tokens with the same bytes in two vocabularies, and the spelling of all others."""

    targets: Ids
    """(n,) ids in the target's vocabulary."""
    drafts: Ids
    """(n,) the ids of the same tokens in the draft's vocabulary."""
    shared: float
    """Share of the distinct tokens of the smaller vocabulary that both have."""
    start: tuple[int, ...]
    """Draft ids that the draft reads before any text."""
    _direct: dict[int, int]
    _meanings: tuple[bytes, ...]
    """(V,) bytes of the target's tokens."""
    _pieces: dict[bytes, int]
    """Draft ids by their bytes."""
    _filler: int
    _read: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def n_target(self) -> int:
        """Size of the target's vocabulary."""
        return len(self._meanings)

    @functools.cached_property
    def _longest(self) -> int:
        return max(map(len, self._pieces), default=1)

    def read(self, token: int) -> tuple[int, ...]:
        """A target token as draft tokens, at least one.

        Where the draft has no such token, its bytes are spelled with the longest tokens that match.
        """
        known = self._read.get(token)
        if known is None:
            direct = self._direct.get(token)
            known = self._spelled(self._meanings[token]) if direct is None else (direct,)
            self._read[token] = known
        return known

    def _spelled(self, text: bytes) -> tuple[int, ...]:
        found: list[int] = []
        at = 0
        while at < len(text):
            for end in range(min(len(text), at + self._longest), at, -1):
                piece = self._pieces.get(text[at:end])
                if piece is not None:
                    found.append(piece)
                    at = end
                    break
            else:  # a byte that the draft cannot spell
                at += 1
        return tuple(found) or (self._filler,)


def translate(target: Vocabulary, draft: Vocabulary) -> TokenMap:
    """The map between two vocabularies; of several tokens with the same bytes, the first counts."""
    texts = [target.token_text(i) for i in range(target.n_vocab)]
    meanings = tuple(meaning(target.vocab_type, text) for text in texts)
    ours = _by_meaning(target)
    theirs = _by_meaning(draft)
    common = {ours[m]: theirs[m] for m in ours if m in theirs}
    share = len(common) / max(1, min(len(ours), len(theirs)))
    direct = {i: theirs[m] for i, m in enumerate(meanings) if m in theirs}
    used = set(common.values())
    for name in ("eos", "eot", "bos"):  # the same meaning under any name
        i, j = target.special_ids[name], draft.special_ids[name]
        if i >= 0 and j >= 0 and i not in direct and j not in used:
            common[i] = direct[i] = j
            used.add(j)
    ids = sorted(common)
    bos, eos = draft.special_ids["bos"], draft.special_ids["eos"]
    return TokenMap(
        targets=np.array(ids, np.int32),
        drafts=np.array([common[i] for i in ids], np.int32),
        shared=share,
        start=(bos,) if draft.adds_bos and not target.adds_bos and bos >= 0 else (),
        _direct=direct,
        _meanings=meanings,
        _pieces={m: i for m, i in theirs.items() if m},
        _filler=max(bos, eos, 0),
    )


def _by_meaning(vocabulary: Vocabulary) -> dict[bytes, int]:
    """Ids by bytes, the first of each; single-byte tokens only where no other token fits."""
    kind = vocabulary.vocab_type
    found: dict[bytes, int] = {}
    single: dict[bytes, int] = {}
    for i in range(vocabulary.n_vocab):
        text = vocabulary.token_text(i)
        into = found if _byte_token(kind, text) is None else single
        into.setdefault(meaning(kind, text), i)
    return single | found


def why_incompatible(target: Vocabulary, draft: Vocabulary) -> str | None:
    """Why a model cannot draft for the target, even across vocabularies; None if it can."""
    mismatch = vocabulary_mismatch(target, draft)
    return None if mismatch is None else too_little(translate(target, draft), mismatch)


def too_little(common: TokenMap, mismatch: str) -> str | None:
    """Why drafting across these vocabularies is useless; None where it is useful."""
    if common.shared >= ENOUGH:
        return None
    return (
        f"{mismatch}; they have {common.shared:.0%} of their tokens in common, and drafting across "
        f"vocabularies needs {ENOUGH:.0%}"
    )
