"""The protocol: what is sent comes back equal, what is not of it is refused."""

import contextlib
import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.core import codec, errors
from localspec.core.emitted import PromptScored, TokenLogprob, TokenLogprobs
from localspec.core.errors import DefectError, EngineError, LocalspecError, UsageError
from localspec.core.events import (
    Finished,
    Loading,
    Message,
    MessageCall,
    ModelInfo,
    Notice,
    Reading,
    Reply,
    ReplyFormat,
    Round,
    Speculation,
    Speedup,
    Stats,
    Token,
)
from localspec.core.logits import Sampling
from localspec.core.reply_request import ReplyRequest
from localspec.core.round_counts import DrafterStats
from localspec.core.values import Origin
from localspec.engine import protocol
from localspec.engine.messages import (
    CloseCommand,
    ExamineCommand,
    FailedEvent,
    HelloEvent,
    InterruptCommand,
    LoadingEvent,
    OpenCommand,
    OpenedEvent,
    ReplyCommand,
    ReplyEvents,
)
from localspec.engine.protocol import BadCommandError

text = st.text(st.characters(exclude_categories=()))  # lone surrogates included
number = st.floats(0, 1e9)
count = st.integers(0, 2**40)
speculations = st.builds(
    Speculation, st.sampled_from(["on", "parked", "off"]), st.none() | text, st.none() | text
)
logprob = st.builds(TokenLogprob, count, text, st.floats(max_value=0, allow_nan=False))
places = st.none() | st.builds(TokenLogprobs, logprob, st.lists(logprob, max_size=3).map(tuple))
tokens = st.builds(Token, count, text, st.sampled_from(Origin), st.none() | text, places)
scored = st.lists(st.tuples(count, places), max_size=3).map(
    lambda pairs: PromptScored(7, tuple(t for t, _ in pairs), tuple(p for _, p in pairs))
)
speedups = st.none() | st.builds(Speedup, number, number)
rounds = st.builds(
    Round, count, count, count, count, number, number, number, text, count, speculations, speedups
)
stats = st.builds(
    Stats,
    *[count] * 7,
    st.lists(number, max_size=3).map(tuple),
    st.dictionaries(text, st.builds(DrafterStats, count, count, count, number), max_size=2),
    *[number] * 4,
    speculations,
    speedups,
)
replies = st.builds(
    Reply,
    text,
    st.lists(count, max_size=3).map(tuple),
    st.lists(st.sampled_from(Origin), max_size=3).map(tuple),
    st.sampled_from(["stop", "length", "interrupt"]),
    stats,
    st.integers(),
)
infos = st.builds(
    ModelInfo,
    text,
    st.none() | text,
    text,
    *[count],
    text,
    count,
    count,
    count,
    speculations,
    st.lists(text, max_size=2).map(tuple),
)
samplings = st.builds(
    Sampling,
    temperature=st.just(0.0) | st.floats(0.01, 100),
    top_k=st.integers(0, 100),
    logit_bias=st.lists(st.tuples(count, st.just(-math.inf) | number), max_size=2).map(tuple),
)
calls = st.builds(MessageCall, text, text, st.just('{"a": "\u00e9"}'))
messages = st.builds(
    Message,
    st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
    *[text] * 2,
    st.lists(calls, max_size=2).map(tuple),
    *[text] * 2,
)
requests = st.builds(
    ReplyRequest,
    st.lists(messages, max_size=3).map(tuple),
    st.none(),
    samplings,
    st.none() | st.integers(),
    st.none() | st.integers(1),
    st.lists(text, max_size=2).map(tuple),
    st.booleans(),
    tools=st.none() | st.just('[{"name": "f"}]'),
    template_arguments=st.none() | st.just('{"a": 1}'),
    markers=st.booleans(),
    drop_oldest=st.booleans(),
)
requests |= st.builds(ReplyRequest, st.just(()), text, samplings)
requests |= st.builds(
    ReplyRequest,
    prompt_tokens=st.lists(count, max_size=3).map(tuple),
    max_tokens=st.just(0),
    logprobs=st.integers(0, 20),
    logprobs_mode=st.sampled_from(["raw", "processed"]),
    prompt_logprobs=st.integers(0, 20),
    prediction=text,
    drafter=st.sampled_from(["off", "suffix,model"]),
    draft_max=st.integers(0, 62),
)
commands = (
    st.builds(OpenCommand, st.dictionaries(text, st.none() | st.integers() | text, max_size=3))
    | st.builds(ReplyCommand, count, requests)
    | st.builds(ExamineCommand, count, requests, st.lists(count).map(tuple), st.none() | count)
    | st.builds(InterruptCommand, count)
    | st.just(CloseCommand())
)
reply_events = (
    tokens
    | scored
    | rounds
    | st.builds(Reading, count, count, count)
    | st.builds(Notice, text)
    | st.builds(ReplyFormat, st.lists(text, max_size=3).map(tuple), st.booleans(), st.none() | text)
    | st.builds(Finished, replies)
)
events = (
    st.builds(HelloEvent, count, count)
    | st.builds(LoadingEvent, st.builds(Loading, text, number))
    | st.builds(OpenedEvent, infos)
    | st.builds(ReplyEvents, count, st.lists(reply_events, min_size=1, max_size=4).map(tuple))
    | st.builds(FailedEvent, st.none() | count, text, text, count)
)


@given(commands)
def test_every_command_survives_the_wire(command):
    line = protocol.encode(command)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert protocol.decode_command(line) == command


@given(events)
def test_every_event_survives_the_wire(event):
    line = protocol.encode(event)
    assert line.count(b"\n") == 1
    assert protocol.decode_event(line) == event


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_garbage_is_refused_with_one_printable_line(line):
    with pytest.raises(BadCommandError) as caught:
        protocol.decode_command(line)
    assert str(caught.value).isprintable()
    with pytest.raises(EngineError) as caught:
        protocol.decode_event(line)
    assert str(caught.value).isprintable()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(events, st.data())
def test_an_event_with_one_field_replaced_is_decoded_or_refused_never_crashes(event, data):
    fields = json.loads(protocol.encode(event))
    name = data.draw(st.sampled_from(sorted(fields)))
    fields[name] = data.draw(json_values)
    with contextlib.suppress(EngineError):
        protocol.decode_event(json.dumps(fields).encode())


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (UsageError, b'{"type":"interrupt"}'),
        (UsageError, b'{"type":"interrupt","id":true}'),
        (UsageError, b'{"type":"interrupt","id":1,"more":2}'),
        (UsageError, b'{"type":"interrupt","id":"1"}'),
        (DefectError, b'{"type":["interrupt"],"id":1}'),
        (
            UsageError,
            b'{"type":"reply","id":1,"request":{"messages":[{"role":"god","content":""}]}}',
        ),
        (UsageError, b'{"type":"reply","id":1,"request":{"messages":"hello","sampling":{}}}'),
        (UsageError, b'{"type":"reply","id":1,"request":{"max_tokens":99999999999999999999}}'),
        (
            DefectError,
            b'{"type":"reply","id":1,"request":{"messages":[],"sampling":{"temperature":NaN}}}',
        ),
        (DefectError, b"[" * 100_000),
    ],
)
def test_almost_commands_are_refused(kind, line):
    with pytest.raises(BadCommandError) as caught:
        protocol.decode_command(line)
    assert type(caught.value.error) is kind


def test_a_sampling_parameter_out_of_range_is_the_users_error_with_the_replys_id():
    with pytest.raises(BadCommandError) as caught:
        protocol.decode_command(
            b'{"type":"reply","id":7,"request":{"messages":[],"sampling":{"temperature":-1}}}'
        )
    assert caught.value.id == 7
    assert type(caught.value.error) is UsageError


@pytest.mark.parametrize(
    "item",
    [
        "[1]",
        '[1,"a","new",null]',
        '["1","a","plain",null]',
        "{}",
        "null",
        '[1,"a",[],null]',
        '{"type":["round"]}',
        '[1,"a","plain",null,[]]',
        '[1,"a","plain",null,[[1,"a","x"],[]]]',
        '[1,"a","plain",null,[[1,"a",0.5],[[2,"b"]]]]',
        '{"type":"prompt_scored","start":0,"tokens":[1],"logprobs":[]}',
        '{"type":"prompt_scored","start":0,"tokens":["1"],"logprobs":[null]}',
        "",
    ],
)
def test_almost_events_are_refused(item):
    with pytest.raises(EngineError):
        protocol.decode_event(b'{"type":"events","id":1,"events":[%s]}' % item.encode())


def test_every_error_of_ours_arrives_as_itself():
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, LocalspecError)
    ]
    assert len(kinds) > 10
    for kind in kinds:
        error = FailedEvent.of(None, kind("a line")).exception()
        assert type(error) is kind
        assert str(error) == "a line"
        assert error.exit_code == kind.exit_code


@pytest.mark.parametrize("name", ["KeyError", "annotations", "nothing", "Message"])
def test_an_unknown_error_arrives_as_an_engine_error(name):
    error = FailedEvent(None, name, "a line", 4).exception()
    assert type(error) is EngineError
    assert error.exit_code == 4


def test_nan_is_never_sent():
    with pytest.raises(codec.CodecError):
        protocol.encode(LoadingEvent(Loading("x", math.nan)))


@pytest.mark.parametrize("number", [1 << 64, -(1 << 64) - 1, 10**5000], ids=["65", "-65", "16610"])
def test_what_the_engine_could_not_read_is_not_sent_and_the_users_error(number):
    for asked in (
        lambda: ReplyRequest(prompt="x", max_tokens=number),
        lambda: ReplyRequest(prompt="x", seed=number),
    ):
        with pytest.raises(UsageError):
            asked()
    for command in (
        ReplyCommand(1, ReplyRequest(prompt_tokens=(number,))),
        ExamineCommand(1, ReplyRequest(prompt="x"), (number,)),
    ):
        with pytest.raises(UsageError, match="cannot be sent: a whole number of more than"):
            protocol.encode(command)


def test_every_message_is_described_where_the_documentation_points():
    for name in (*protocol._COMMANDS, *protocol._MESSAGES):
        assert f"\n    {name} " in protocol.__doc__ or f"\n    {name}\n" in protocol.__doc__, name
    assert f"version {protocol.VERSION}." in protocol.__doc__


def test_the_conversation_in_the_documentation_is_one():
    page = (Path(__file__).parents[2] / "docs/protocol.md").read_text(encoding="utf-8")
    lines = re.findall(r"^([<>]) (.*)$", page, re.MULTILINE)
    assert len(lines) > 8
    for side, line in lines:
        if "..." not in line:  # shortened
            decode = protocol.decode_command if side == ">" else protocol.decode_event
            assert decode(line.encode())
