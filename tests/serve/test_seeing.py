"""The SDKs of OpenAI and Anthropic send pictures to a real server with a model that sees."""

from __future__ import annotations

import base64
import dataclasses
from pathlib import Path

import anthropic
import httpx2
import openai
import pytest
from picture_files import drawn, png, write_seeing
from served import Served, served

from localspec.core.options import Options

ONE = base64.b64encode(png()).decode()
URL = f"data:image/png;base64,{ONE}"
OTHER = f"data:image/jpeg;base64,{base64.b64encode(png(drawn(7), format='JPEG')).decode()}"
PARTS = [
    {"type": "text", "text": "What is this?"},
    {"type": "image_url", "image_url": {"url": URL, "detail": "high"}},
]


def options(folder: Path) -> Options:
    seeing = write_seeing(folder / "model", "llava")
    return Options(model=str(seeing.model), draft="none", threads=1, remember=False)


@pytest.fixture
def server(tmp_path: Path, mtmd: None):
    with served(options=options(tmp_path)) as found:
        yield found
    assert found.notes.defects == []


@pytest.fixture
def api(server: Served):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client:
        yield client


def test_the_sdks_send_pictures(server: Served, api: openai.OpenAI) -> None:
    model = api.models.list().data[0].id
    shared = {"model": model, "temperature": 0, "seed": 1}
    messages = [{"role": "user", "content": PARTS}]
    chat = api.chat.completions.create(messages=messages, max_tokens=8, **shared)
    assert chat.usage.prompt_tokens > 64
    again = api.chat.completions.create(messages=messages, max_tokens=8, **shared)
    assert again.choices[0].message.content == chat.choices[0].message.content
    assert again.usage.prompt_tokens_details.cached_tokens == chat.usage.prompt_tokens - 1
    both = [*PARTS, {"type": "image_url", "image_url": {"url": OTHER}}]
    two = [{"role": "user", "content": both}]
    found = api.chat.completions.create(messages=two, max_tokens=8, **shared)
    assert found.usage.prompt_tokens > 128

    content = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": URL, "detail": "auto"},
    ]
    response = api.responses.create(
        model=model,
        input=[{"role": "user", "content": content}],
        max_output_tokens=8,
        temperature=0,
    )
    assert response.usage.input_tokens == chat.usage.prompt_tokens

    with anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=0) as claude:
        source = {"type": "base64", "media_type": "image/png", "data": ONE}
        blocks = [{"type": "text", "text": "What is this?"}, {"type": "image", "source": source}]
        message = claude.messages.create(
            model=model, max_tokens=8, messages=[{"role": "user", "content": blocks}]
        )
        assert message.usage.output_tokens > 0
        asked = [{"role": "user", "content": blocks}]
        counted = claude.messages.count_tokens(model=model, messages=asked)
        used = message.usage
        assert counted.input_tokens == used.input_tokens + (used.cache_read_input_tokens or 0)
    split = httpx2.post(f"{server.url}/tokenize", json={"messages": messages}).json()
    assert split["count"] == chat.usage.prompt_tokens
    assert split["tokens"].count(-1) == 64
    prompt = httpx2.post(f"{server.url}/apply-template", json={"messages": messages}).json()
    assert "<image>" in prompt["prompt"]
    assert httpx2.get(f"{server.url}/props").json()["modalities"]["vision"] is True


@pytest.mark.slow
def test_what_is_no_picture_answers_400(api: openai.OpenAI) -> None:
    for url, why in {
        "https://example.com/cat.png": "this server fetches nothing (https)",
        "file:///etc/passwd": "this server fetches nothing (file)",
        "data:image/png;base64,AAAA": "is damaged or of no known kind",
        "data:image/png;base64,?": "not in base64",
        "data:audio/wav;base64,AAAA": "audio/wav is no picture",
    }.items():
        messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
        with pytest.raises(openai.BadRequestError) as raised:
            api.chat.completions.create(model="llava", messages=messages)
        assert why in raised.value.message


@pytest.mark.slow
def test_a_model_that_cannot_see_answers_400_and_says_what_to_load(tmp_path: Path) -> None:
    blind = dataclasses.replace(options(tmp_path), mmproj="none")
    with (
        served(options=blind) as found,
        openai.OpenAI(base_url=f"{found.url}/v1", api_key="x", max_retries=0) as client,
    ):
        with pytest.raises(openai.BadRequestError, match=r"cannot see pictures.*--mmproj FILE"):
            client.chat.completions.create(
                model="llava", messages=[{"role": "user", "content": PARTS}]
            )
        assert httpx2.get(f"{found.url}/props").json()["modalities"]["vision"] is False
