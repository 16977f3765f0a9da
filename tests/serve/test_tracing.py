"""OpenTelemetry spans of requests, by its own API with a provider of the test."""

import builtins

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, StatusCode
from opentelemetry.trace.propagation import get_current_span

from localspec.core.errors import DecodeError
from localspec.serve.backend.records import Tracing

CHAT = "/v1/chat/completions"


def messages(text="Hi"):
    return [{"role": "user", "content": text}]


TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Recording(NonRecordingSpan):
    """A span that remembers."""

    def __init__(self, name, parent, kind, start_time):
        super().__init__(parent)
        self.name, self.parent, self.kind = name, parent, kind
        self.began, self.ended, self.found, self.events, self.status = start_time, 0, {}, [], None

    def is_recording(self):
        return True

    def set_attributes(self, attributes):
        self.found.update(attributes)

    def add_event(self, name, attributes=None, timestamp=None):
        self.events.append((name, timestamp))

    def set_status(self, status, description=None):
        self.status = status

    def end(self, end_time=None):
        self.ended = end_time or 1


class Tracer(trace.NoOpTracer):
    """Makes them."""

    def __init__(self):
        self.spans = []

    def start_span(self, name, context=None, kind=None, start_time=None, **_):
        parent = get_current_span(context).get_span_context()
        self.spans.append(Recording(name, parent, kind, start_time))
        return self.spans[-1]


@pytest.fixture
def tracer(monkeypatch):
    found = Tracer()
    monkeypatch.setattr(trace, "get_tracer", lambda *_: found)
    return found


async def test_a_request_is_a_span_of_its_clients_trace_and_has_no_text(tracer, make_world):
    world = await make_world()
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    asked = {"messages": messages("a secret"), "max_tokens": 6}
    assert (await world.client.post(CHAT, json=asked, headers=headers)).status_code == 200
    (span,) = tracer.spans
    assert (span.name, span.kind) == (f"POST {CHAT}", trace.SpanKind.SERVER)
    assert f"{span.parent.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == PARENT
    assert span.found["gen_ai.response.model"] == "fake"
    assert span.found["gen_ai.usage.output_tokens"] == len(world.words)
    assert span.found["gen_ai.usage.input_tokens"] == 4
    assert span.found["localspec.accepted_tokens"] == 3
    ((event, at),) = span.events
    assert event == "first token"
    assert at >= span.began
    assert span.ended
    assert span.status is None
    assert "secret" not in repr(span.found)
    assert "Hello" not in repr(span.found)


async def test_a_request_that_fails_is_a_span_with_its_error(tracer, make_world):
    world = await make_world()
    world.error = DecodeError("llama.cpp failed")
    assert (await world.client.post(CHAT, json={"messages": messages()})).status_code == 500
    (span,) = tracer.spans
    assert span.status.status_code is StatusCode.ERROR
    assert not span.parent.is_valid


async def test_without_a_provider_and_without_the_package_nothing_changes(world, monkeypatch):
    assert (await world.client.post(CHAT, json={"messages": messages()})).status_code == 200
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    world.service.tracing = Tracing()
    assert (await world.client.post(CHAT, json={"messages": messages()})).status_code == 200
