"""The object that ``run --json`` prints, of a whole reply or of one that broke off."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from localspec.cli.output import json_line
from localspec.core.events import ModelInfo, Reply, ReplyEvent, Token
from localspec.core.json_text import object_or_text
from localspec.core.reply_tally import ReplyTally

if TYPE_CHECKING:
    from localspec.chats.calls import SavedCall

_ALL = 256
"""Tokens of a reply after each of which the object is made anew; then at each further 256th part,
so that a long reply does not become slow.
"""


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
