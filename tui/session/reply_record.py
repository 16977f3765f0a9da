"""The details of a reply that are saved with its text: its tokens and its recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localspec.chats import calls
from localspec.chats.record import reply_details
from localspec.core import codec
from localspec.core.emitted import Origin
from localspec.core.errors import LocalspecError
from localspec.core.events import Stats, Token
from tui.session.conversation import ChatTurn
from tui.session.recipes import How

_FORMER = "plain_tokens_per_second"
"""Field of `Stats` that was saved once; it is derived now."""
_MOST = 1 << 53
"""The largest count, and seconds, of a reply."""


@dataclass(frozen=True, slots=True)
class SavedTokens:
    """The tokens of a reply, one entry a token; compact, since it is saved with every reply.

    The names of the fields are keys of the file.
    """

    ids: tuple[int, ...]
    lengths: tuple[int, ...]
    """Characters of each token's text."""
    kinds: tuple[int, ...]
    """Index into ``origins`` and ``sources``."""
    origins: tuple[Origin, ...]
    sources: tuple[str | None, ...]


def details(turn: ChatTurn) -> dict[str, Any] | None:
    """The details to save with a turn, as JSON; None where only its text is known."""
    saved = reply_details(turn.model, turn.stats, turn.seed, turn.draft)
    saved |= calls.details(list(turn.calls), turn.calls_at)
    if turn.stats is None:
        return saved or None
    if tokens := list(turn.tokens):  # a copy: it may grow while the saver's thread reads it
        saved["tokens"] = codec.encode(_tokens(tokens))
    made, how = turn.made, turn.saved_how
    if made is not None:  # the tools may be others in a later session
        how = made.how if made.tools is None else None
    if how is not None:
        saved["how"] = codec.encode(how)
    return saved


def restore(turn: ChatTurn, saved: Mapping[str, Any]) -> None:
    """Put saved details back into a turn; those of an unknown shape are ignored."""
    seed = saved.get("seed")
    turn.seed = seed if type(seed) is int else None
    stats = saved.get("stats")
    if isinstance(stats, dict):
        stats = {name: value for name, value in stats.items() if name != _FORMER}
    turn.stats = _decoded(Stats, stats) if _countable(stats) else None
    tokens = _decoded(SavedTokens, saved.get("tokens"))
    fits = tokens is not None and min(tokens.lengths, default=0) >= 0
    if tokens is not None and fits and sum(tokens.lengths) <= len(turn.text):
        turn.tokens = _restored(tokens, turn.text)
        how = _decoded(How, saved.get("how"))
        if how and 0 <= how.start <= len(turn.tokens) and 0 <= how.said <= len(turn.text):
            turn.saved_how = how
    found, turn.calls_at = calls.saved(saved)
    turn.calls = list(found)
    at = sum(len(token.text) for token in turn.tokens)
    for token in turn.tokens:
        turn.runs.add(token)
    turn.runs.extend(turn.text[at:])


def _countable(value: object) -> bool:
    """Whether all numbers in saved figures are some that a reply can have: the file may have come
    from anywhere, and the bottom line divides them.
    """
    if isinstance(value, dict | list):
        return all(map(_countable, value.values() if isinstance(value, dict) else value))
    least = 0 if isinstance(value, int) else -_MOST  # saved seconds may be lost ones
    return not isinstance(value, int | float) or least <= value <= _MOST


def _tokens(tokens: list[Token]) -> SavedTokens:
    kinds = list(dict.fromkeys((token.origin, token.source) for token in tokens))
    index = {kind: i for i, kind in enumerate(kinds)}
    return SavedTokens(
        tuple(token.token for token in tokens),
        tuple(len(token.text) for token in tokens),
        tuple(index[token.origin, token.source] for token in tokens),
        tuple(origin for origin, _ in kinds),
        tuple(source for _, source in kinds),
    )


def _restored(saved: SavedTokens, text: str) -> list[Token]:
    tokens, at = [], 0
    for identity, length, kind in zip(saved.ids, saved.lengths, saved.kinds, strict=False):
        if not 0 <= kind < min(len(saved.origins), len(saved.sources)):
            return []
        part = text[at : at + length]
        tokens.append(Token(identity, part, saved.origins[kind], saved.sources[kind]))
        at += length
    return tokens


def _decoded(kind: type[Any], value: object) -> Any:
    try:
        return codec.decode(kind, value)
    except (codec.CodecError, LocalspecError):  # another shape, or values that are invalid now
        return None
