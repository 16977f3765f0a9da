"""``/tokenize``, ``/detokenize``, ``/apply-template`` of llama.cpp, and vLLM's fields for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from localspec.core.reply_request import ReplyRequest
from localspec.core.tokenized import Tokenized
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer, read_body_as, while_connected
from localspec.serve.http.caller import caller_of
from localspec.serve.http.fields import Fields
from localspec.serve.http.large_bodies import elsewhere
from localspec.serve.replies.logprob_shapes import whole
from localspec.serve.requests.conversation import read_messages, template_arguments
from localspec.serve.requests.request_fields import made
from localspec.serve.requests.tool_fields import read_tools

LARGEST_ID = 1 << 31
_TOKEN_BYTES = 16
"""Of an answer, for each token."""


def routes(service: Service) -> list[BaseRoute]:
    """The endpoints."""
    tokens = Tokens(service)
    return [
        Route("/tokenize", tokens.tokenize, methods=["POST"]),
        Route("/detokenize", tokens.detokenize, methods=["POST"]),
        Route("/tokenizer_info", tokens.about, methods=["GET"]),
        Route("/apply-template", tokens.apply_template, methods=["POST"]),
    ]


class Tokens:
    """The endpoints."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def tokenize(self, request: Request) -> Response:
        """Token ids of a text (``content`` or ``prompt``) or of a conversation (``messages``)."""
        fields, asked = await read_body_as(request, self._service.settings.limits, _split)
        found = await self._ask(
            request, fields, asked.request, special=asked.special, bos=asked.bos
        )
        info = self._service.slot.info
        head = {} if info is None else {"max_model_len": info.context}
        size = _TOKEN_BYTES * len(found.tokens)
        return await elsewhere(size, lambda: JSONAnswer(asked.answer(found) | head))

    async def about(self, request: Request) -> Response:
        """The tokens that begin and end a text, for clients that split texts by this server."""
        await self._ask(request, Fields({}), made({"prompt": "."}))  # has the model loaded
        info = self._service.slot.info
        known = (info.bos, info.eos) if info is not None else ("", "")
        bos, eos = (text or None for text in known)
        return JSONAnswer({"bos_token": bos, "eos_token": eos, "add_bos_token": bos is not None})

    async def detokenize(self, request: Request) -> Response:
        """The text of token ids."""
        fields, asked = await read_body_as(request, self._service.settings.limits, _joined)
        found = await self._ask(request, fields, asked)
        return JSONAnswer({"content": found.text, "prompt": found.text})

    async def apply_template(self, request: Request) -> Response:
        """The prompt of a conversation as text."""
        fields, asked = await read_body_as(request, self._service.settings.limits, _conversation)
        found = await self._ask(request, fields, asked)
        return JSONAnswer({"prompt": found.text})

    async def _ask(
        self,
        request: Request,
        fields: Fields,
        asked: ReplyRequest,
        *,
        special: bool = True,
        bos: bool = True,
    ) -> Tokenized:
        service = self._service
        name = fields.text("model")
        service.tell_unknown(request.url.path, fields.unread())
        work = service.tokenize(caller_of(request.scope), name, asked, special=special, bos=bos)
        return await while_connected(request, work)


@dataclass(frozen=True, slots=True)
class _Split:
    """A request for the tokens of a text."""

    request: ReplyRequest
    special: bool
    bos: bool
    pieces: bool
    """llama.cpp's form of the tokens with their texts."""
    texts: bool
    """vLLM's."""

    def answer(self, found: Tokenized) -> dict[str, Any]:
        """The fields of the answer."""
        answer: dict[str, Any] = {"tokens": list(found.tokens), "count": len(found.tokens)}
        if self.pieces:
            answer["tokens"] = [
                {"id": token, "piece": _piece(text)}
                for token, text in zip(found.tokens, found.pieces, strict=True)
            ]
        elif self.texts:
            answer["token_strs"] = [whole(text) for text in found.pieces]
        return answer


def _split(fields: Fields) -> _Split:
    """What a body asks to be split.

    Raises:
        ApiError: it is invalid.
    """
    pieces = fields.flag("with_pieces")
    texts = fields.flag("return_token_strs") or False
    bos = fields.flag("add_special")
    if bos is None:
        # llama.cpp's field is content, without the token of the beginning; vLLM's is prompt.
        bos = fields.flag("add_special_tokens")
        bos = not fields.has("content") if bos is None else bos
    special = fields.flag("parse_special")
    as_objects = pieces is not None and (pieces or texts)
    return _Split(_text_of(fields), special is not False, bos, as_objects, texts)


def _text_of(fields: Fields) -> ReplyRequest:
    if fields.has("messages"):
        return _conversation(fields)
    read_tools(fields)  # which a text has no use for
    for name in ("content", "prompt"):
        if fields.has(name):
            return made({"prompt": fields.text(name)})
    raise fields.refuse("content", "is missing: the text to split")


def _joined(fields: Fields) -> ReplyRequest:
    """The tokens that a body asks the text of.

    Raises:
        ApiError: there are none.
    """
    tokens = fields.items("tokens")
    if tokens is None:
        raise fields.refuse("tokens", "is missing")
    if not all(type(token) is int and 0 <= token < LARGEST_ID for token in tokens):
        raise fields.refuse("tokens", "must be an array of token ids")
    return made({"prompt_tokens": tuple(tokens)})


def _conversation(fields: Fields) -> ReplyRequest:
    """A conversation with what else is in its prompt.

    Raises:
        ApiError: it is invalid.
    """
    return made(
        {
            "messages": read_messages(fields),
            "tools": read_tools(fields).text,
            "template_arguments": template_arguments(fields),
        }
    )


def _piece(text: str) -> str | list[int]:
    """A token's text, or its bytes where they are not UTF-8 by themselves."""
    raw = text.encode("utf-8", "surrogateescape")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)


__all__ = ["LARGEST_ID", "Tokens", "routes"]
