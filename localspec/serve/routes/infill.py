"""``POST /infill``: the text at a cursor, for editors, in llama-server's shape."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from localspec.core.events import Finished, Reply, ReplyEvent, Token
from localspec.core.reply_request import ReplyRequest
from localspec.serve.backend.answering import Answering
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer, StreamedAnswer, elsewhere, while_connected
from localspec.serve.http.body_budget import caller_of
from localspec.serve.http.errors import OpenAIShape
from localspec.serve.http.sse import sse
from localspec.serve.replies.answer_fields import answer_size, measurements, own
from localspec.serve.replies.deltas import rounds
from localspec.serve.requests.generation import Extras, made
from localspec.serve.requests.infill import InfillBody
from localspec.serve.routes import answers, examples
from localspec.serve.routes.endpoint import Received, post

PATH = "/infill"
SHAPE = OpenAIShape("input_prefix")
"""The shape of errors."""


def routes(service: Service) -> list[BaseRoute]:
    """The path."""
    return post(
        service,
        PATH,
        Infills(service).answer,
        "The text at a cursor, in llama-server's shape",
        body=InfillBody,
        answer=answers.Suggestion,
        stream=True,
        example=examples.INFILL,
    )


class Infills:
    """The endpoint."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def answer(self, received: Received[InfillBody]) -> Response:
        """Answer one request. A client that leaves ends its reply."""
        service, request, body = self._service, received.http, received.body
        asked = await received.apart(lambda: made(body.request(service.settings)))
        extras = body.wanted(received.given)
        answering = await service.answer(
            caller_of(request.scope),
            PATH,
            body.model,
            [asked],
            strict=extras.strict,
        )
        shown = _Shown(answering, asked, body, extras)
        if body.stream:
            return StreamedAnswer(shown.parts(), service.settings.limits, shape=SHAPE)
        return await while_connected(request, shown.whole())


class _Shown:
    """The answer to one request, whole or in parts."""

    def __init__(
        self, answering: Answering, asked: ReplyRequest, body: InfillBody, extras: Extras
    ) -> None:
        self._answering = answering
        self._asked, self._body, self._extras = asked, body, extras

    async def whole(self) -> Response:
        """The answer in one piece."""
        async with self._answering as answering:
            prompt = await self._prompt()
            found = await answering.replies()
        ((events, reply),) = found
        return await elsewhere(
            answer_size(found), lambda: JSONAnswer(self._answer(prompt, events, reply))
        )

    def _answer(
        self, prompt: dict[str, Any], events: Sequence[ReplyEvent], reply: Reply
    ) -> dict[str, Any]:
        tokens = [event.token for event in events if isinstance(event, Token)]
        whole = self._last(events, reply, reply.text, tokens)
        return _selected(whole | prompt, self._body.response_fields)

    async def parts(self) -> AsyncIterator[bytes]:
        """The events of a stream. As in llama-server, nothing follows the one that is the last.

        Raises:
            ApiError: there is no engine, or the reply failed.
        """
        sent, emitted = 0, 0
        seen: list[ReplyEvent] = []
        async with self._answering as answering:
            prompt = await self._prompt()
            async for _, events in answering:
                found = b""
                for part in rounds(events):
                    seen += part
                    tokens = [event for event in part if isinstance(event, Token)]
                    emitted += len(tokens)
                    last = part[-1]
                    text = "".join(token.text for token in tokens)
                    if isinstance(last, Finished):
                        text += last.reply.text[sent + len(text) :]
                    sent += len(text)
                    if text or (tokens and self._body.return_tokens):
                        found += sse(self._part(text, tokens, emitted))
                    if isinstance(last, Finished):
                        whole = self._last(seen, last.reply, "", []) | prompt
                        found += sse(_selected(whole, self._body.response_fields))
                if found:
                    yield found

    async def _prompt(self) -> dict[str, Any]:
        """The prompt as text, where it is asked for by name."""
        if "prompt" not in (self._body.response_fields or ()):
            return {}
        return {"prompt": (await self._answering.tokenize(self._asked)).text}

    def _part(self, text: str, tokens: Sequence[Token], emitted: int) -> dict[str, Any]:
        return {
            "index": 0,
            "content": text,
            "tokens": [token.token for token in tokens] if self._body.return_tokens else [],
            "stop": False,
            "id_slot": 0,
            "tokens_predicted": emitted,
        }

    def _last(
        self, events: Sequence[ReplyEvent], reply: Reply, text: str, tokens: Sequence[int]
    ) -> dict[str, Any]:
        """The fields of the whole answer, with this text and these tokens of it."""
        stats = reply.stats
        return {
            "index": 0,
            "content": text,
            "tokens": [*tokens] if self._body.return_tokens else [],
            "id_slot": 0,
            "stop": True,
            "model": self._answering.record.model,
            "tokens_predicted": stats.emitted,
            "tokens_evaluated": stats.prompt_tokens,
            "generation_settings": _settings(self._asked, reply),
            "has_new_line": "\n" in reply.text,
            "truncated": False,
            "stop_type": _stop_type(reply),
            "stopping_word": reply.stop_text or "",
            "tokens_cached": stats.prompt_tokens + stats.emitted,
            "localspec": own(events, reply, self._extras),
            **measurements(stats),
        }


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


def _selected(answer: Mapping[str, Any], paths: Sequence[str] | None) -> dict[str, Any]:
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
