"""``--logprobs`` and ``--prediction`` of ``run``: scores and counts as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from localspec.cli.output import decode, read_within
from localspec.core.emitted import PromptScored, TokenLogprob, TokenLogprobs
from localspec.core.errors import UsageError
from localspec.core.events import Finished, ReplyEvent, Token
from localspec.core.reply_request import ReplyRequest

_IMPOSSIBLE = -9999.0
"""Log-probability of what cannot come: JSON has no infinity, and OpenAI writes this number."""


class ScoredOutput:
    """Collects the scores of one reply."""

    def __init__(self, request: ReplyRequest) -> None:
        self._request = request
        self._reply: list[TokenLogprobs | None] = []
        self._prompt: list[TokenLogprobs | None] = []
        self._accepted = self._rejected = 0

    def take(self, event: ReplyEvent) -> None:
        """Take any event of the reply."""
        if isinstance(event, Token):
            self._reply.append(event.logprobs)
        elif isinstance(event, PromptScored):
            self._prompt += event.logprobs
        elif isinstance(event, Finished):
            stats = event.reply.stats
            self._accepted = stats.accepted_prediction_tokens
            self._rejected = stats.rejected_prediction_tokens

    def fields(self) -> dict[str, Any]:
        """The fields for ``run --json``: none where nothing was asked for."""
        found: dict[str, Any] = {}
        if self._request.logprobs is not None:
            found["logprobs"] = _places(self._reply)
        if self._request.prompt_logprobs is not None:
            found["prompt_logprobs"] = _places(self._prompt)
        if self._request.prediction is not None:
            found["prediction"] = {"accepted": self._accepted, "rejected": self._rejected}
        return found


def _places(places: Sequence[TokenLogprobs | None]) -> list[dict[str, Any] | None]:
    return [
        None if place is None else {**_one(place.chosen), "top": [_one(one) for one in place.top]}
        for place in places
    ]


def _one(one: TokenLogprob) -> dict[str, Any]:
    """A token; its text has U+FFFD where its bytes are a part of a character."""
    return {
        "token": one.token,
        "text": one.bytes.decode("utf-8", "replace"),
        "bytes": [*one.bytes],
        "logprob": max(_IMPOSSIBLE, one.logprob),
    }


def require_json(logprobs: int | None, url: str | None, *, as_json: bool) -> None:
    """Check the conditions of ``--logprobs``.

    Raises:
        UsageError: nothing would print them, or another engine is asked.
    """
    if logprobs is not None and not as_json:
        raise UsageError("log-probabilities are printed with --json; add it")
    if logprobs is not None and url is not None:
        raise UsageError("--logprobs are those of a model of this machine; leave out --url")


def read_prediction(place: str | None, url: str | None) -> str | None:
    """The text of a file that the reply is expected to be much like.

    Raises:
        UsageError: it cannot be read, is too large or no UTF-8, or another engine is asked.
    """
    if place is None:
        return None
    if url is not None:
        raise UsageError("--prediction drafts for a model of this machine; leave out --url")
    try:
        with Path(place).open("rb") as file:
            return decode(read_within(file, place), place)
    except OSError as error:
        raise UsageError(f"{place} cannot be read: {error.strerror}") from None
