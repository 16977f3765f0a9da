"""The object that ``run --json`` prints, of a whole reply or of one that broke off: text, counts,
``--logprobs`` and ``--prediction``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from localspec.cli.output import json_line, read_file
from localspec.core.emitted import PromptScored, TokenLogprob, TokenLogprobs
from localspec.core.errors import UsageError
from localspec.core.events import Finished, ModelInfo, Reply, ReplyEvent, Token
from localspec.core.json_text import object_or_text
from localspec.core.reply_request import ReplyRequest
from localspec.core.reply_tally import ReplyTally

if TYPE_CHECKING:
    from localspec.chats.calls import SavedCall

_ALL = 256
"""Tokens of a reply after each of which the object is made anew; then at each further 256th part,
so that a long reply does not become slow.
"""

_IMPOSSIBLE = -9999.0
"""Log-probability of what cannot come: JSON has no infinity, and OpenAI writes this number."""


def report(reply: Reply, info: ModelInfo) -> dict[str, Any]:
    """The object that ``run --json`` prints."""
    s = reply.stats
    told = s.speculation.state != "unknown"  # else a server does not tell what it drafts
    judged = told and bool(s.verified or not s.drafted)
    return {
        "text": reply.text,
        "tokens": list(reply.tokens),
        "origins": [str(o) for o in reply.origins],
        "finish_reason": reply.finish_reason,
        "stats": {
            # A prompt has at least one token: 0 is what a server does not tell.
            "prompt_tokens": s.prompt_tokens or None,
            "cached_tokens": s.cached_tokens if s.prompt_tokens else None,
            "saved_seconds": s.saved_seconds,
            "emitted": s.emitted,
            "rounds": s.rounds if told else None,
            "drafted": s.drafted if told else None,
            "verified": s.verified if judged else None,
            "accepted": s.accepted if told else None,
            "acceptance": s.acceptance if judged else None,
            "tokens_per_round": s.tokens_per_round if told else None,
            "per_position": list(s.per_position),
            "by_drafter": {name: dataclasses.asdict(d) for name, d in s.by_drafter.items()},
            "prompt_seconds": s.prompt_seconds,
            "decode_seconds": s.decode_seconds,
            "clock": s.clock,
            "tokens_per_second": s.tokens_per_second or (None if s.emitted else 0.0),
            "plain_tokens_per_second": s.plain_tokens_per_second,
            "speculation": {"state": s.speculation.state, "reason": s.speculation.reason},
        },
        "model": {"target": info.target, "draft": info.draft, "backend": info.backend},
        "seed": reply.seed,
        **({} if reply.valid else {"valid": False}),
    }


def calls_report(calls: Sequence[SavedCall]) -> dict[str, Any]:
    """The calls of tools that were made for a reply; no field where there were none."""
    if not calls:
        return {}
    return {
        "calls": [
            {
                "tool": call.place,
                "arguments": object_or_text(call.arguments),
                "result": call.said,
                "failed": call.state == "failed",
                "seconds": call.seconds,
            }
            for call in calls
        ]
    }


class Partial:
    """Makes the object of a reply that may break off, of what has arrived."""

    def __init__(
        self,
        info: ModelInfo,
        seed: int | None,
        keep: Callable[[str], None],
        *,
        index: dict[str, int] | None = None,
        remote: bool = False,
    ) -> None:
        """``keep`` gets the object as a line of JSON as it grows, behind the ``index`` of one of
        several; ``remote`` is whether a server elsewhere answers, whose rounds have no times.
        """
        self._info, self._keep, self._index = info, keep, index or {}
        self._tally = ReplyTally(seed, arrives=remote)
        self._tokens = self._due = 0

    def take(self, event: ReplyEvent) -> None:
        """Note an event of the reply."""
        self._tally.take(event)
        if not isinstance(event, Token):
            return
        self._tokens += 1
        if self._tokens >= self._due:
            self._due = self._tokens + 1 + self._tokens // _ALL
            self._keep(json_line(self._index | self.found()))

    def found(self) -> dict[str, Any]:
        """The object now; no field before the first token."""
        if not self._tokens:
            return {}
        reply = self._tally.finished("interrupt").reply
        return report(reply, self._info) | {"complete": False}


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
    return read_file(place)
