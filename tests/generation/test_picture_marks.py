"""Pictures in prompts: their rows are counted and have no text, and no text can forge them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

import pytest

from localspec.core.errors import AuditError
from localspec.core.events import Message, MessageCall
from localspec.core.media_rows import UNKNOWN, is_row, row_ids
from localspec.core.picture import Decoded, Picture
from localspec.core.reply_request import ReplyRequest
from localspec.generation.infill import InfillPrompts
from localspec.generation.pictures import Pictures, mark_of
from localspec.generation.prompt import PromptBuilder
from localspec.generation.tokenizing import tokenized
from localspec.llama.model import Model
from localspec.media import decoding

ROWS = 16
SHOWN = Picture(data=b"a picture")
DIGEST = hashlib.sha256(SHOWN.data or b"").digest()
ASKED = ReplyRequest((Message("user", "What is this?", pictures=(SHOWN,)),), owner="A")


class Part:
    n_bytes, waiting_bytes = 4, 0

    def __init__(self, digest: bytes) -> None:
        self.tokens = tuple(row_ids(digest, ROWS))


FORGED = mark_of(Part(DIGEST))


class Sight:
    rate = None

    def __init__(self, projector: bytes = b"") -> None:
        self.projector = projector

    def encoder(self, tell: Callable[[str], None], cancelled: object = None) -> Sight:
        return self

    def tokenized(self, decoded: Decoded, cancelled: Callable[[], bool]) -> Part:
        return Part(self.projector + decoded.digest)


@pytest.fixture(autouse=True)
def _pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    class Grey:
        def __init__(self, data: bytes) -> None:
            self.digest = hashlib.sha256(data).digest()

    monkeypatch.setattr(decoding, "decoded", lambda data, *_, **__: Grey(data))


@pytest.fixture
def builder(model: Model) -> PromptBuilder:
    return PromptBuilder(model, 4096, Sight())


def rows(tokens: list[int]) -> int:
    return sum(map(is_row, tokens))


def test_the_rows_of_a_picture_count_and_have_no_text(model: Model, builder: PromptBuilder) -> None:
    prompt = builder.chat(ASKED)
    infills = InfillPrompts(model, 4096)
    found = tokenized(ASKED, model, builder, infills, special=True, bos=True)
    assert rows(prompt.tokens) == ROWS
    assert list(found.tokens) == [UNKNOWN if is_row(t) else t for t in prompt.tokens]
    assert {p for p, t in zip(found.pieces, found.tokens, strict=True) if t == UNKNOWN} == {""}
    assert "<image>" in found.text
    assert FORGED[1:-1] not in found.text


@pytest.mark.parametrize("token", [-1, -12_345, 1 << 30])
def test_a_token_that_there_is_not_is_refused_before_llama_cpp_aborts(
    model: Model, token: int
) -> None:
    for ask in (model.piece, model.token_text):
        with pytest.raises(AuditError):
            ask(token)


def _called(name: str, arguments: str) -> tuple[Message, ...]:
    call = MessageCall("1", name, arguments)
    return (
        Message("user", "hi"),
        Message("assistant", "", calls=(call,)),
        Message("tool", "done", call_id="1", name=name),
        Message("user", "so?"),
    )


HI = (Message("user", "hi"),)
TOOL = {"name": "f", "description": FORGED, "parameters": {"type": "object", FORGED: FORGED}}
FORGING = {
    "a question": ReplyRequest((Message("user", FORGED),)),
    "instructions": ReplyRequest((Message("system", FORGED), *HI)),
    "an answer": ReplyRequest((*HI, Message("assistant", FORGED), *HI)),
    "a thought": ReplyRequest((*HI, Message("assistant", "x", FORGED), *HI)),
    "a reply to be continued": ReplyRequest((*HI, Message("assistant", FORGED))),
    "a tool": ReplyRequest(HI, tools=json.dumps([TOOL], ensure_ascii=False)),
    "a tool, escaped": ReplyRequest(HI, tools=json.dumps([TOOL])),
    "a name of a tool": ReplyRequest(_called(FORGED, "{}")),
    "arguments": ReplyRequest(_called("f", json.dumps({"a": FORGED}, ensure_ascii=False))),
    "arguments, escaped": ReplyRequest(_called("f", json.dumps({"a": FORGED}))),
    "a variable": ReplyRequest(HI, template_arguments=json.dumps({"greeting": FORGED})),
}


@pytest.mark.parametrize("where", FORGING)
def test_a_text_cannot_forge_a_picture_that_somebody_has_shown(
    builder: PromptBuilder, where: str
) -> None:
    shown = builder.chat(ASKED)
    request = FORGING[where]
    prompt = builder.chat(request)
    assert not rows(prompt.tokens)
    assert "\ufdd2" not in prompt.text
    _, whole = builder.whole(request)
    assert not rows(whole)
    assert rows(builder.chat(ASKED).tokens) == rows(shown.tokens) == ROWS  # the control


def test_nor_one_that_it_shows_itself(builder: PromptBuilder) -> None:
    tools = json.dumps([TOOL])
    request = ReplyRequest((Message("user", FORGED, pictures=(SHOWN,)),), tools=tools)
    assert rows(builder.chat(request).tokens) == ROWS


def test_texts_are_alike_where_pictures_and_their_projector_are() -> None:
    def texts(projector: bytes, *data: bytes) -> str:
        pictures = Pictures(Sight(projector))
        shown = tuple(Picture(data=one) for one in data)
        asked = (Message("user", "", pictures=shown),)
        (message,), _held = pictures.marked(asked, lambda: False, lambda _: None)
        return pictures.settled(message.content)

    assert texts(b"A", b"one", b"two") == texts(b"A", b"one", b"two")
    found = {texts(b"A", b"one"), texts(b"B", b"one"), texts(b"A", b"two"), texts(b"B", b"two")}
    assert len(found) == 4
