"""Suffix drafting: propose what followed the last tokens before, weighted by how often it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.core.plan import Evidence
from localspec.drafters.base import Ask, Committed
from localspec.drafters.lookup.common import AT_ONCE, LookupDrafter, LookupTexts
from localspec.drafters.lookup.request_memory import BORDER, Passage, RequestMemory
from localspec.drafters.lookup.suffix_index import LONGEST, SuffixIndex

_PLACES = 12
"""Occurrences that vote."""
_POWER = 3
"""Exponent of a match's length in its weight."""
_DOUBT = 1.5
"""Length of a match with confidence 1/2."""
_DOUBT_MEMORY = 6.5
"""The same for a passage of an earlier request: another text goes on in the same way less often.
Measured on source files and pages of one project, each with 1.3 million tokens of others in memory:
0.69, 0.77, 0.86 and 0.90 of the tokens were right after matches of 8, 12, 24 and 32."""


@dataclass(slots=True)
class _Vote:
    """An occurrence that agrees with the draft so far."""

    at: int
    """Place of the token that it proposes next."""
    length: int
    """Tokens that agree, drafted ones included."""


class Suffix(LookupDrafter):
    """Drafts from the whole conversation (Oliaro et al. 2024, "SuffixDecoding").

    All earlier occurrences of the text's last tokens vote for the next token, each with the cube of
    the length of its match; those outvoted are dropped. In a tie the earliest occurrence decides:
    it is the original, later ones are edits of it. The confidence is the share of the votes times a
    function of the longest match, so a long quotation is drafted far, and a doubtful match is not.

    Where a passage of the owner's earlier requests inspires more confidence, it is copied instead.
    """

    name = "suffix"

    def __init__(
        self, min_match: int = 1, earlier: Sequence[Sequence[int]] = (), memory: int = 0
    ) -> None:
        """Matches shorter than ``min_match`` do not count. ``earlier`` are texts to draft from
        besides; no draft runs from one into the next. ``memory`` is the most bytes for what
        `remember` is told.
        """
        super().__init__()
        self._min = min_match
        self.quotes_chats = bool(earlier)
        self._earlier = [token for text in earlier for token in (*text, BORDER)]
        self._spare: list[SuffixIndex] = []
        """Indexes that have the earlier texts: making one takes long."""
        if earlier:
            self._spare.append(SuffixIndex(earlier=self._earlier))
            self._spare[0].follow(())
        self._texts: dict[int, SuffixIndex] = {}
        self._memory = RequestMemory(memory)

    def _guess(self, ask: Ask, k: int) -> tuple[list[int], list[float], Sequence[int]]:
        """The continuation that most places agree on, or a passage of an earlier request."""
        text = self._index(ask.seq)
        if not text.follow(ask.tokens, most=AT_ONCE):
            return [], [], ()
        votes = [
            _Vote(match.end, match.length)
            for match in text.matches(_PLACES)
            if match.length >= self._min
        ]
        passage = self._recalled(ask, votes, text.text, k)
        if passage is None:
            return _voted(ask, votes, text.text, k)
        return self._copied(ask, passage, k)

    def _recalled(
        self, ask: Ask, votes: Sequence[_Vote], text: Sequence[int], k: int
    ) -> Passage | None:
        """A passage of an earlier request that inspires more confidence than the conversation."""
        if ask.recalls is None:
            return None
        votes = [vote for vote in votes if _token_at(vote.at, text, ()) != BORDER]
        confidence = _count(votes, text, ())[1] if votes else 0.0
        if confidence >= _of_passage(LONGEST):
            return None
        passage = self._memory.recall(ask.recalls, ask.tokens, k)
        if passage is None or _of_passage(passage.length) <= confidence:
            return None
        return passage

    def _copied(
        self, ask: Ask, passage: Passage, k: int
    ) -> tuple[list[int], list[float], list[int]]:
        """A guess of `_guess` that is copied from a passage, and from those that continue where it
        ends.
        """
        assert ask.recalls is not None
        tokens: list[int] = []
        confidences: list[float] = []
        found: Passage | None = passage
        while found is not None:
            for n, token in enumerate(found.following):
                confidences.append(_of_passage(found.length + n))
                if not ask.pace.more(confidences):
                    return tokens, confidences, [token]
                tokens.append(token)
            end = [*ask.tokens[-LONGEST:], *tokens]
            found = self._memory.recall(ask.recalls, end, k - len(tokens))
        return tokens, confidences, []

    def remember(self, owner: str, tokens: Sequence[int]) -> None:
        """Take a text in, to draft from where the owner asks again."""
        self._memory.learn(owner, tokens)

    def forget_requests(self) -> None:
        """Empty the memory of earlier requests."""
        self._memory.clear()

    def _index(self, seq: int) -> SuffixIndex:
        text = self._texts.get(seq)
        if text is None:
            spare = self._spare
            text = spare.pop() if spare else SuffixIndex(earlier=self._earlier)
            self._texts[seq] = text
        return text

    def prompt_read(self, seq: int, tokens: Sequence[int], upto: int) -> None:
        """Index the prompt while the target reads it, so that the first draft takes no longer than
        others.
        """
        self._index(seq).follow(tokens, upto, most=AT_ONCE)

    def commit(self, committed: Sequence[Committed]) -> list[Evidence]:
        """Compare the last guesses with the emitted tokens; `propose` indexes the new ones."""
        for item in committed:
            text = self._texts.get(item.seq)
            if text is not None and len(text) > len(item.all_tokens):
                text.follow(item.all_tokens, most=AT_ONCE)
        return super().commit(committed)

    def length(self, seq: int) -> int:
        """Indexed tokens of the sequence."""
        text = self._texts.get(seq)
        return 0 if text is None else len(text)

    def close(self, seq: int) -> None:
        """Forget the sequence."""
        text = self._texts.pop(seq, None)
        if text is not None and self._earlier:
            text.follow((), most=AT_ONCE)
            self._spare.append(text)
        super().close(seq)


def _of_passage(length: int) -> float:
    """Confidence in the next token of an earlier request after that many equal ones."""
    return length / (length + _DOUBT_MEMORY)


def _voted(
    ask: Ask, votes: list[_Vote], text: Sequence[int], k: int
) -> tuple[list[int], list[float], list[int]]:
    """See `LookupDrafter._guess`."""
    tokens: list[int] = []
    confidences: list[float] = []
    while len(tokens) < k:
        votes = [v for v in votes if _token_at(v.at, text, tokens) != BORDER]
        if not votes:
            break
        token, confidence = _count(votes, text, tokens)
        confidences.append(confidence)
        if not ask.pace.more(confidences):
            return tokens, confidences, [token]
        votes = _agreeing(votes, token, text, tokens)
        tokens.append(token)
    return tokens, confidences, []


def _count(
    votes: Sequence[_Vote], text: Sequence[int], drafted: Sequence[int]
) -> tuple[int, float]:
    """(The token with most votes, its confidence in [0, 1))."""
    weights: dict[int, int] = {}
    earliest: dict[int, int] = {}
    longest = 0
    for vote in votes:
        token = _token_at(vote.at, text, drafted)
        weights[token] = weights.get(token, 0) + vote.length**_POWER
        earliest[token] = min(earliest.get(token, vote.at), vote.at)
        longest = max(longest, vote.length)
    best = max(weights, key=lambda token: (weights[token], -earliest[token]))
    share = weights[best] / sum(weights.values())
    return best, share * longest / (longest + _DOUBT)


def _agreeing(
    votes: Sequence[_Vote], token: int, text: Sequence[int], drafted: Sequence[int]
) -> list[_Vote]:
    return [
        _Vote(vote.at + 1, vote.length + 1)
        for vote in votes
        if _token_at(vote.at, text, drafted) == token
    ]


def _token_at(at: int, text: Sequence[int], drafted: Sequence[int]) -> int:
    """The token at a place; beyond the end of the text the draft follows."""
    return text[at] if at < len(text) else drafted[at - len(text)]


def open_drafter(texts: LookupTexts) -> Suffix:
    """Open it with these texts."""
    return Suffix(texts.min_match, texts.earlier, texts.memory)
