"""What is kept of a reply besides its text: its tokens, and how to make it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localspec.chats.values import MODEL
from localspec.core import codec
from localspec.core.events import Stats, Token
from localspec.core.origin import Origin
from localspec.errors import LocalspecError
from tui.session.conversation import How, Turn


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a reply, each field in their order; short, since every reply is kept so."""

    ids: tuple[int, ...]
    lengths: tuple[int, ...]
    """Characters of the text that came with each."""
    kinds: tuple[int, ...]
    """Index into ``origins`` and ``sources``."""
    origins: tuple[Origin, ...]
    sources: tuple[str | None, ...]


def details(turn: Turn) -> dict[str, Any] | None:
    """What to keep of a turn, as JSON; None where only its text is known."""
    kept: dict[str, Any] = {} if turn.model is None else {MODEL: turn.model}
    if turn.stats is None:
        return kept or None
    kept |= {"seed": turn.seed, "stats": codec.encode(turn.stats)}
    if tokens := list(turn.tokens):  # a copy: it may grow while the saver's thread looks at it
        kept["tokens"] = codec.encode(_tokens(tokens))
    if turn.made is not None:
        system = turn.made.messages[0]
        said = system.content if system.role == "system" else None
        made = turn.made
        how = How(made.sampling, made.max_tokens, said, made.start, made.said)
        kept["how"] = codec.encode(how)
    return kept


def restore(turn: Turn, kept: Mapping[str, Any]) -> None:
    """Put back what was kept; what another version wrote is left out, the text is what counts."""
    seed = kept.get("seed")
    turn.seed = seed if type(seed) is int else None
    model = kept.get(MODEL)
    turn.model = model if isinstance(model, str) else None
    turn.stats = _decoded(Stats, kept.get("stats"))
    tokens = _decoded(Tokens, kept.get("tokens"))
    fits = tokens is not None and min(tokens.lengths, default=0) >= 0
    if tokens is not None and fits and sum(tokens.lengths) <= len(turn.text):
        turn.tokens = _restored(tokens, turn.text)
        turn.how = _decoded(How, kept.get("how"))
    at = sum(len(token.text) for token in turn.tokens)
    for token in turn.tokens:
        turn.runs.add(token)
    turn.runs.extend(turn.text[at:])


def _tokens(tokens: list[Token]) -> Tokens:
    kinds = list(dict.fromkeys((token.origin, token.source) for token in tokens))
    index = {kind: i for i, kind in enumerate(kinds)}
    return Tokens(
        tuple(token.token for token in tokens),
        tuple(len(token.text) for token in tokens),
        tuple(index[token.origin, token.source] for token in tokens),
        tuple(origin for origin, _ in kinds),
        tuple(source for _, source in kinds),
    )


def _restored(kept: Tokens, text: str) -> list[Token]:
    tokens, at = [], 0
    for identity, length, kind in zip(kept.ids, kept.lengths, kept.kinds, strict=False):
        if not 0 <= kind < min(len(kept.origins), len(kept.sources)):
            return []
        part = text[at : at + length]
        tokens.append(Token(identity, part, kept.origins[kind], kept.sources[kind]))
        at += length
    return tokens


def _decoded(kind: type[Any], value: object) -> Any:
    try:
        return codec.decode(kind, value)
    except (codec.CodecError, LocalspecError):  # another shape, or values that are refused now
        return None
