"""The page at /, a path in front of all others, TLS, and the time to drain."""

import asyncio
import re
import ssl
import subprocess

import httpx2
import pytest
from fake_serving import World
from served import served
from waiting import until_so

from localspec.core.errors import UsageError
from localspec.serve.http.settings import ApiKeys, ServeSettings
from localspec.serve.server import tls_of
from localspec.serve.serving import Serving

HTML = {"accept": "text/html,application/xhtml+xml"}
HI = {"messages": [{"role": "user", "content": "Hi"}]}
KEY = "a-key-of-ours"


async def test_a_browser_gets_a_page_that_says_what_runs_and_loads_nothing(world):
    await world.client.post("/v1/chat/completions", json=HI)
    answer = await world.client.get("/", headers=HTML)
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script" not in policy
    page = answer.text
    for said in (
        "<td>fake",
        "drafters",
        "6 tokens",
        "50% of the guesses right",
        "apiBase",
        "OLLAMA_HOST",
    ):
        assert said in page
    assert "<script" not in page
    assert not re.search(r'(src|href)="(https?:)?//', page)
    assert "http://127.0.0.1:8080/v1" in page


async def test_other_programs_get_a_line(world):
    answer = await world.client.get("/")
    assert answer.text == "localspec is running\n"


async def test_the_page_needs_the_key_and_shows_nothing_without(make_world):
    world = await make_world(keys=ApiKeys((KEY,)))
    refused = await world.client.get("/", headers=HTML)
    assert refused.status_code == 401
    assert "fake" not in refused.text
    shown = await world.client.get("/", headers=HTML | {"authorization": f"Bearer {KEY}"})
    assert shown.status_code == 200
    assert KEY not in shown.text


async def test_names_are_escaped_in_the_page(world):
    from localspec.core.options import Options

    world.slot.options = Options(model="<b>x</b>\x1b[31m")
    page = (await world.client.get("/", headers=HTML)).text
    assert "<b>" not in page
    assert "\x1b" not in page


async def test_a_page_without_a_loaded_model_says_so(world):
    assert "not loaded" in (await world.client.get("/", headers=HTML)).text


async def test_paths_below_the_root_path_are_answered_with_and_without_it(make_world):
    world = await make_world(root_path="/llm")
    for path in ("/llm/v1/models", "/v1/models", "/llm/v1/models/"):
        assert (await world.client.get(path)).status_code == 200
    assert (await world.client.get("/llmv1/models")).status_code == 404
    assert (await world.client.get("/llm")).text == "localspec is running\n"
    described = (await world.client.get("/llm/openapi.json")).json()
    assert described["servers"] == [{"url": "/llm"}]
    assert 'href="/llm/health"' in (await world.client.get("/llm/", headers=HTML)).text


# -- TLS -------------------------------------------------------------------------------------------


def test_a_server_with_a_certificate_speaks_https(pem):
    certificate, key, _ = pem
    settings = ServeSettings(port=0, tls=(certificate, key))
    with served(settings, factory=World()) as server:
        assert server.url.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=str(certificate))
        with httpx2.Client(verify=context) as client:
            answer = client.post(f"{server.url}/api/chat", json=HI)
            assert answer.status_code == 200
            assert answer.text.count("\n") == 4
        assert server.notes.defects == []


def test_files_of_tls_that_cannot_be_used_are_named(pem, tmp_path):
    certificate, key, other = pem
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    locked = tmp_path / "locked.key"
    command = ["openssl", "pkey", "-in", str(key), "-aes256", "-passout", "pass:secret"]
    subprocess.run([*command, "-out", str(locked)], check=True, capture_output=True)
    for files, said in (
        ((tmp_path / "none.pem", key), "none.pem: No such file"),
        ((certificate, other), "is not the key of"),
        ((text, key), "no certificate in PEM"),
        ((certificate, text), "no key in PEM"),
        ((certificate, locked), "is encrypted"),
    ):
        with pytest.raises(UsageError, match=said):
            tls_of(ServeSettings(tls=files))
    assert tls_of(ServeSettings(tls=(certificate, key))) is not None


# -- the end ---------------------------------------------------------------------------------------


class Front(World):
    """Tells the address when the server is ready."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.address = asyncio.get_running_loop().create_future()

    def ready(self, service, address):
        self.address.set_result(address)


@pytest.mark.slow
@pytest.mark.parametrize("drain", [0.0, 60.0])
async def test_a_reply_has_as_long_as_the_drain_when_the_server_stops(drain):
    world = Front(port=0, drain_seconds=drain)
    world.hold = asyncio.Event()
    serving = Serving(world.settings, world.slot.options, world, world)
    running = asyncio.create_task(serving.run())
    address = await world.address
    async with httpx2.AsyncClient(timeout=60) as client:
        asked = asyncio.create_task(client.post(f"{address}/api/chat", json=HI))
        await until_so(lambda: serving.service.metrics.emitted >= 2)
        serving.stop(143)
        if drain:
            world.hold.set()
        answer = await asked
    assert await running == 143
    assert ('"error"' in answer.text) == (not drain)
    assert ('"done":true' in answer.text) == bool(drain)
