"""Grammars in the words of `localspec serve`, which reads them back as they were."""

from __future__ import annotations

import pytest

from localspec.core.events import Message
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.reply_request import ReplyRequest
from localspec.remote.dialects import LOCALSPEC
from localspec.remote.request_body import body
from localspec.serve.http.typed import read
from localspec.serve.requests.chat import ChatBody

SPECS = [
    GrammarSpec.schema({"type": "integer"}),
    GrammarSpec.json_object(),
    GrammarSpec.regex("[0-9]{4}"),
    GrammarSpec.choice(["yes", 'n"o\n']),
    GrammarSpec.lark('start: "a"+'),
    GrammarSpec.gbnf('root ::= "a"+'),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_a_localspec_server_gets_every_grammar(spec: GrammarSpec) -> None:
    request = ReplyRequest((Message("user", "x"),), grammar=spec)
    assert read(ChatBody, body(request, "demo", LOCALSPEC, 1)).followed() == spec
