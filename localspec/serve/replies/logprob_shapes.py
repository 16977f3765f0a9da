"""Log-probabilities in the shapes of OpenAI's two endpoints, and of vLLM for prompts."""

from __future__ import annotations

import codecs
import math
from collections.abc import Sequence
from typing import Any

from localspec.core.emitted import TokenLogprob, TokenLogprobs
from localspec.core.events import Token

_IMPOSSIBLE = -9999.0
"""OpenAI's value for a token that cannot come: JSON has no infinity."""


def number(logprob: float) -> float:
    """A log-probability as JSON can hold it."""
    return logprob if math.isfinite(logprob) else _IMPOSSIBLE


def text(token: TokenLogprob) -> str:
    """The text of a token; bytes that are not UTF-8 by themselves become U+FFFD."""
    return token.bytes.decode("utf-8", "replace")


def whole(piece: str) -> str:
    """The same for a piece of `Tokenized`."""
    return piece.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _name(token: bytes) -> str:
    """The text of a token in lists of /v1/completions: bytes that are no text by themselves are
    written out, so that two of them differ.
    """
    try:
        return token.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)


def _entry(token: TokenLogprob) -> dict[str, Any]:
    return {
        "token": text(token),
        "logprob": number(token.logprob),
        "bytes": list(token.bytes),
    }


def chat_logprobs(tokens: Sequence[Token]) -> dict[str, Any]:
    """``logprobs`` of /v1/chat/completions."""
    content = [
        _entry(token.logprobs.chosen)
        | {"top_logprobs": [_entry(other) for other in token.logprobs.top]}
        for token in tokens
        if token.logprobs is not None
    ]
    return {"content": content, "refusal": None}


class TextLogprobs:
    """``logprobs`` of /v1/completions: parallel lists, with offsets into the text."""

    def __init__(self, top: int) -> None:
        """``top`` is the number of alternatives that were asked for."""
        self._top = top
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def of(
        self, places: Sequence[TokenLogprobs | None], written: Sequence[bytes]
    ) -> dict[str, Any]:
        """The lists for the next tokens; None for the first token of a prompt, which nothing
        precedes. Tokens that make one character together are all at its offset.
        """
        offsets = []
        for token in written:
            offsets.append(self._offset)
            self._offset += len(self._decoder.decode(token))
        return {
            "tokens": [_name(token) for token in written],
            "token_logprobs": [None if p is None else number(p.chosen.logprob) for p in places],
            "top_logprobs": [None if p is None else self._alternatives(p) for p in places],
            "text_offset": offsets,
        }

    def _alternatives(self, place: TokenLogprobs) -> dict[str, float]:
        """The likeliest tokens by text, the chosen one among them, as OpenAI has it."""
        found: dict[str, float] = {}
        for token in (*place.top[: self._top], place.chosen):
            found.setdefault(_name(token.bytes), number(token.logprob))
        return found


def vllm_prompt(places: Sequence[TokenLogprobs | None], most: int) -> list[Any]:
    """vLLM's ``prompt_logprobs``: an object by token id for each token of the prompt, which has
    the ``most`` likeliest ones and the prompt's own.
    """
    found: list[Any] = []
    for place in places:
        if place is None:
            found.append(None)
            continue
        ranks = {token.token: rank for rank, token in enumerate(place.top, 1)}
        told = {token.token: token for token in (*place.top[:most], place.chosen)}
        found.append(
            {
                str(token.token): {
                    "logprob": number(token.logprob),
                    "rank": ranks.get(token.token),
                    "decoded_token": text(token),
                }
                for token in told.values()
            }
        )
    return found
