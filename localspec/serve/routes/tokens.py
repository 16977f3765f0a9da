"""``/tokenize``, ``/detokenize``, ``/apply-template`` of llama.cpp, and vLLM's fields for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from localspec.core.reply_request import ReplyRequest, Tokenized
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer, elsewhere, while_connected
from localspec.serve.http.body_budget import caller_of
from localspec.serve.http.errors import bad_request
from localspec.serve.http.typed import NOT_NULL, Body, Foreign, any_of
from localspec.serve.http.wording import REFUSAL
from localspec.serve.replies.logprob_shapes import whole
from localspec.serve.requests.chat import ConversationBody
from localspec.serve.requests.chat_messages import ChatMessages
from localspec.serve.requests.completion import TokenId
from localspec.serve.requests.foreign_fields import OF_PROMPTS
from localspec.serve.requests.generation import made
from localspec.serve.routes import answer_types, examples
from localspec.serve.routes.endpoint import Endpoints, Received

_TOKEN_BYTES = 16
"""Of an answer, for each token."""


class TemplateBody(ConversationBody, kw_only=True):
    """A conversation whose prompt is wanted."""

    foreign: ClassVar[Mapping[str, Foreign]] = OF_PROMPTS


class TokenizeBody(TemplateBody, kw_only=True):
    """A text (``content`` or ``prompt``) or a conversation to split."""

    also: ClassVar[dict[str, Any]] = any_of("content", "prompt", "messages", **NOT_NULL)

    messages: ChatMessages | None = None  # type: ignore[assignment] # may be left out here
    content: str | None = None
    prompt: str | None = None
    add_special: bool | None = None
    add_special_tokens: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None
    return_token_strs: bool | None = None

    @property
    def bos(self) -> bool:
        """Whether the token of the beginning is wanted: not with llama.cpp's field, content."""
        named = self.add_special_tokens if self.add_special is None else self.add_special
        return self.content is None if named is None else named

    def answer(self, found: Tokenized) -> dict[str, Any]:
        """The fields of the answer."""
        answer: dict[str, Any] = {"tokens": list(found.tokens), "count": len(found.tokens)}
        texts = self.return_token_strs or False
        if self.with_pieces or (self.with_pieces is not None and texts):
            answer["tokens"] = [
                {"id": token, "piece": _piece(text)}
                for token, text in zip(found.tokens, found.pieces, strict=True)
            ]
        elif texts:
            answer["token_strs"] = [whole(text) for text in found.pieces]
        return answer


class DetokenizeBody(Body, kw_only=True):
    """Tokens to put together."""

    model: str | None = None
    tokens: Annotated[list[TokenId], Meta(extra={REFUSAL: "must be an array of token ids"})]


endpoints = Endpoints()


@endpoints.post("/tokenize", answer=answer_types.Tokens, example=examples.TOKENIZE)
async def tokenize(received: Received[TokenizeBody]) -> Response:
    """The tokens of a text or conversation."""
    body, service = received.body, received.service
    found = await _ask(
        received,
        await received.apart(lambda: _asked(body, received.given)),
        special=body.parse_special is not False,
        bos=body.bos,
    )
    info = service.slots.info
    head = {} if info is None else {"max_model_len": info.context}
    size = _TOKEN_BYTES * len(found.tokens)
    return await elsewhere(received.caller, size, lambda: JSONAnswer(body.answer(found) | head))


def _asked(body: TokenizeBody, given: dict[str, Any]) -> ReplyRequest:
    tools = body.offered(given)  # which a text has no use for
    if body.messages is not None:
        return made(body.request(tools))
    text = body.prompt if body.content is None else body.content
    if text is None:
        raise bad_request("content is missing: the text to split", "content")
    return made({"prompt": text})


@endpoints.get("/tokenizer_info")
async def tokenizer_info(service: Service, request: Request) -> Response:
    """The tokens that begin and end a text."""
    work = service.tokenize(caller_of(request.scope), None, made({"prompt": "."}))
    await while_connected(request, work)  # has the model loaded
    info = service.slots.info
    known = (info.bos, info.eos) if info is not None else ("", "")
    bos, eos = (text or None for text in known)
    return JSONAnswer({"bos_token": bos, "eos_token": eos, "add_bos_token": bos is not None})


@endpoints.post("/detokenize", answer=answer_types.Text, example=examples.DETOKENIZE)
async def detokenize(received: Received[DetokenizeBody]) -> Response:
    """The text of tokens."""
    tokens = received.body.tokens
    asked = await received.apart(lambda: made({"prompt_tokens": tuple(tokens)}))
    found = await _ask(received, asked)
    return JSONAnswer({"content": found.text, "prompt": found.text})


@endpoints.post("/apply-template", answer=answer_types.Prompt, example=examples.TEMPLATE)
async def apply_template(received: Received[TemplateBody]) -> Response:
    """The prompt of a conversation."""
    body, given = received.body, received.given
    asked = await received.apart(lambda: made(body.request(body.offered(given))))
    found = await _ask(received, asked)
    return JSONAnswer({"prompt": found.text})


async def _ask(received: Received[Any], asked: ReplyRequest, **how: bool) -> Tokenized:
    work = received.service.tokenize(received.caller, received.body.model, asked, **how)
    return await while_connected(received.http, work)


def _piece(text: str) -> str | list[int]:
    """A token's text, or its bytes where they are not UTF-8 by themselves."""
    raw = text.encode("utf-8", "surrogateescape")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)
