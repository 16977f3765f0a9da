"""``POST /infill``: the text at a cursor, for editors, in llama-server's shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from starlette.responses import Response

from localspec.core.events import Finished, Reply, ReplyEvent, Token
from localspec.core.reply_request import ReplyRequest
from localspec.serve.backend.answering import Answering
from localspec.serve.http.errors import OpenAIShape
from localspec.serve.http.sse import sse
from localspec.serve.replies.answer_fields import measurements, own, tokens_of
from localspec.serve.requests.generation import made
from localspec.serve.requests.infill import InfillBody
from localspec.serve.routes import answer_types, examples
from localspec.serve.routes.endpoint import Endpoints, Received
from localspec.serve.routes.replying import Asked, SingleAnswer, answered

PATH = "/infill"
SHAPE = OpenAIShape("input_prefix")
"""The shape of errors."""


endpoints = Endpoints()


@endpoints.post(PATH, answer=answer_types.Suggestion, stream=True, example=examples.INFILL)
async def fill(received: Received[InfillBody]) -> Response:
    """The text at a cursor, in llama-server's shape."""
    return await answered(received, PATH, _read, InfillAnswer)


class InfillAsked(Asked, frozen=True, kw_only=True):
    """A request, read."""

    fields: Sequence[str]
    """Paths to the fields that are wanted of the answer; none: all."""
    tokens: bool
    """Whether the ids of tokens are wanted."""


def _read(received: Received[InfillBody]) -> InfillAsked:
    body = received.body
    return InfillAsked(
        replies=[made(body.request(received.service.settings))],
        extras=body.wanted(received.given),
        fields=body.response_fields or (),
        tokens=body.return_tokens or False,
    )


class InfillAnswer(SingleAnswer[InfillAsked]):
    """The answer. As in llama-server, nothing follows the event of a stream that is the last."""

    shape = SHAPE

    def __init__(self, answering: Answering, asked: InfillAsked) -> None:
        super().__init__(answering, asked)
        self._prompt: dict[str, Any] = {}
        """The prompt as text, where it is asked for by name."""
        self._sent = self._emitted = 0
        """Characters and tokens of a stream so far."""

    async def _begin(self) -> None:
        if "prompt" in self._asked.fields:
            self._prompt = {"prompt": (await self._answering.tokenize(0)).text}

    def _whole_reply(self, events: Sequence[ReplyEvent], reply: Reply) -> dict[str, Any]:
        return self._last(events, reply, reply.text, tokens_of(events))

    def _reply_pieces(self, events: Sequence[ReplyEvent]) -> Iterator[bytes]:
        tokens, last = tokens_of(events), events[-1]
        self._emitted += len(tokens)
        text = "".join(token.text for token in tokens)
        if isinstance(last, Finished):
            text += last.reply.text[self._sent + len(text) :]
        self._sent += len(text)
        if text or (tokens and self._asked.tokens):
            yield sse(self._part(text, tokens) | {"stop": False, "tokens_predicted": self._emitted})
        if isinstance(last, Finished):
            yield sse(self._last(self._told[0], last.reply, "", []))

    def _part(self, text: str, tokens: Sequence[Token]) -> dict[str, Any]:
        return {
            "index": 0,
            "content": text,
            "tokens": [token.token for token in tokens] if self._asked.tokens else [],
            "id_slot": 0,
        }

    def _last(
        self, events: Sequence[ReplyEvent], reply: Reply, text: str, tokens: Sequence[Token]
    ) -> dict[str, Any]:
        """The fields of the whole answer that are wanted, with this text and these tokens of it."""
        stats, (asked,) = reply.stats, self._asked.replies
        whole = self._part(text, tokens) | {
            "stop": True,
            "model": self._model,
            "tokens_predicted": stats.emitted,
            "tokens_evaluated": stats.prompt_tokens,
            "generation_settings": _settings(asked, reply),
            "has_new_line": "\n" in reply.text,
            "truncated": False,
            "stop_type": _stop_type(reply),
            "stopping_word": reply.stop_text or "",
            "tokens_cached": stats.prompt_tokens + stats.emitted,
            "localspec": own(events, reply, self._asked.extras),
            **measurements(stats),
            **self._prompt,
        }
        return _selected(whole, self._asked.fields)


def _stop_type(reply: Reply) -> str:
    """llama-server's word for the end of a reply."""
    if reply.finish_reason != "stop":
        return "limit"
    return "eos" if reply.stop_text is None else "word"


def _settings(asked: ReplyRequest, reply: Reply) -> dict[str, Any]:
    """What the reply was made with."""
    s, infill = asked.sampling, asked.infill
    assert infill is not None
    return {
        "n_predict": -1 if asked.max_tokens is None else asked.max_tokens,
        "seed": reply.seed,
        "temperature": s.temperature,
        "top_k": s.top_k,
        "top_p": s.top_p,
        "min_p": s.min_p,
        "repeat_penalty": s.repeat_penalty,
        "repeat_last_n": s.penalty_last_n,
        "presence_penalty": s.presence_penalty,
        "frequency_penalty": s.frequency_penalty,
        "stop": [*asked.stop],
        "n_indent": infill.indent,
    }


def _selected(answer: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """The fields of an answer that ``response_fields`` names, such as ``timings/prompt_n``; all
    without it.
    """
    if not paths:
        return dict(answer)
    found: dict[str, Any] = {}
    for path in paths:
        value: Any = answer
        for name in path.split("/"):
            value = value.get(name, _ABSENT) if isinstance(value, Mapping) else _ABSENT
        if value is not _ABSENT:
            found[path] = value
    return found


_ABSENT = object()
