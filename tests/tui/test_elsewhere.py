"""The interface with a server elsewhere: what it shows, and what only our engine can do."""

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "remote"))

from fake_engine import FakeEngine, Script
from played_server import DONE, STREAM, PlayedServer, ended, models, said

from localspec.config import settings as config
from localspec.core.files import paths
from localspec.remote.address import parse
from localspec.remote.client import RemoteClient
from localspec.remote.connection import Patience
from localspec.remote.keys import Key

SERVER = "http://127.0.0.1:8080/v1"
PLAIN = "thatengine cannot switch its speculation off for one reply"


@pytest.fixture
def engine():
    found = FakeEngine([Script()])
    found.server, found.why_not_plain = SERVER, PLAIN
    return found


async def test_the_title_and_the_welcome_name_the_server(chat, engine):
    async with chat(engine=engine) as c:
        assert SERVER in c.screen_text.splitlines()[0]
        assert f"come from the server at {SERVER}" in c.screen_text
        assert "thread" not in c.screen_text.splitlines()[0]
        await c.ask("Hi")
        model = c.session.chat.recorder.info.model
        assert model == f"{SERVER}#/demo"


@pytest.mark.parametrize("command", ["/model other", "/set threads 3", "/draft other.gguf"])
async def test_how_a_model_is_loaded_is_set_on_the_server(chat, engine, command):
    async with chat(engine=engine) as c:
        await c.type(command)
        await c.sees("decides which model it loads")
        assert engine.closed == 0


async def test_what_always_drafts_is_not_told_to_stop(chat, engine):
    async with chat(engine=engine) as c:
        await c.ask("Hi")
        await c.type("/draft off")
        await c.sees(PLAIN)
        assert c.session.settings.draft
        await c.pilot.press("f3")
        await c.pilot.pause()
        assert c.app.screen is c.app.screen_stack[0]


async def test_a_preset_is_used_as_far_as_it_concerns_replies(chat, engine):
    text = '[presets.brief]\ntemperature = 0.5\nctx = 512\nsystem = "Be brief."\nmodel = "x"\n'
    paths.make(paths.config_dir())
    (paths.config_dir() / "config.toml").write_text(text)
    config.settings.cache_clear()
    async with chat(engine=engine) as c:
        await c.type("/preset brief")
        await c.sees("without what is set on the server")
        assert c.session.settings.sampling.temperature == 0.5
        assert c.session.chat.conversation.system == "Be brief."
        assert engine.closed == 0


async def test_a_reply_that_breaks_off_is_kept_and_the_next_one_is_asked(chat):
    """Against a client and a server that breaks off, sends escape sequences, and comes back."""
    broken = [STREAM, said("One \x1b]0;x\x07")]
    whole = [STREAM, said("Two"), ended(), DONE]
    routes = {"/v1/models": models("m"), "/v1/chat/completions": (broken, whole)}
    async with PlayedServer(routes) as server:
        client = RemoteClient(parse(server.url), Key(), patience=Patience(attempts=1))
        client.go = asyncio.Event()  # as a fake engine's, for the fixture
        async with chat(engine=client) as c:
            await c.type("Hi")
            await c.sees("what had arrived is kept")
            assert "One \ufffd]0;x\ufffd" in c.screen_text
            assert c.replies[-1].end == "failed"
            await c.type("Again")
            await c.sees("Two")
            await c.ready()
            asked = server.asked_for("/v1/chat/completions")[1].json["messages"]
            assert [m["role"] for m in asked] == ["user", "assistant", "user"]
            assert "speculation not reported" in c.screen_text
