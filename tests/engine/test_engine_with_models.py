"""The child process with the real runtime and a random pair of models."""

import asyncio
import subprocess
import sys

import pytest

from localspec.core.errors import ContextError, ModelNotFoundError, UsageError
from localspec.core.events import Finished, Loading, Message, Round, Token
from localspec.core.options import Options
from localspec.core.reply_request import ReplyRequest
from localspec.engine.client import EngineClient


@pytest.fixture
async def client(files, tmp_path):
    options = Options(model=str(files.target), draft=str(files.draft), threads=1, draft_max=3)
    client = EngineClient(options, log_dir=tmp_path)
    yield client
    await client.close()


async def ask(client, messages, **more):
    reply = client.reply(ReplyRequest(tuple(messages), seed=1, **more))
    return [event async for event in reply]


async def test_a_conversation(client):
    loading = []
    info = await client.open(loading.append)
    assert any(isinstance(event, Loading) for event in loading)
    assert info.draft is not None
    assert info.switches_thinking is False
    messages = [Message("user", "Hello")]
    first = await ask(client, messages, max_tokens=24)
    reply = first[-1].reply
    assert isinstance(first[-1], Finished)
    assert [e.token for e in first if isinstance(e, Token)] == list(reply.tokens)
    assert sum(e.emitted for e in first if isinstance(e, Round)) == reply.stats.emitted

    again = await ask(client, messages, max_tokens=24)
    assert again[-1].reply.tokens == reply.tokens  # the same seed
    plainly = await ask(client, messages, max_tokens=24, draft=False)
    assert plainly[-1].reply.tokens == reply.tokens  # drafting changes nothing

    asked = ReplyRequest(tuple(messages), seed=1)
    found = await client.examine(asked, reply.tokens[:5])
    assert found.chosen.token == reply.tokens[4]
    with pytest.raises(UsageError, match="tokens"):
        await client.examine(asked, [])
    # The engine knows of it once the loop has had its turn, and ends it without an answer.
    left = asyncio.create_task(client.examine(asked, reply.tokens[:5] * 40))
    await asyncio.sleep(0)
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left

    more = [*messages, Message("assistant", reply.text), Message("user", "And?")]
    assert isinstance((await ask(client, more, max_tokens=4))[-1], Finished)

    with pytest.raises(ContextError):
        await ask(client, [Message("user", "x" * 5000)])
    assert isinstance((await ask(client, messages, max_tokens=4))[-1], Finished)


async def test_an_interrupt_comes_through(client):
    await client.open()
    kept, reply, asked = "", None, False
    events = client.reply(ReplyRequest((Message("user", "Hello"),), seed=1))
    async for event in events:
        if isinstance(event, Token):
            kept += event.text
            if not asked:
                asked = True
                events.interrupt()
        elif isinstance(event, Finished):
            reply = event.reply
    assert reply.text.startswith(kept)
    assert reply.finish_reason in ("interrupt", "length", "stop")


async def test_what_cannot_be_opened_says_why(tmp_path):
    client = EngineClient(Options(model="./nothing.gguf"), log_dir=tmp_path)
    with pytest.raises(ModelNotFoundError):
        await client.open()
    assert not client.alive


def test_options_of_the_wrong_kind_are_refused():
    from localspec.runtime import open_from_fields

    with pytest.raises(UsageError, match="threads"):
        open_from_fields({"threads": "many"}, lambda event: None, lambda: False)


@pytest.mark.parametrize("saved", [False, True])
def test_states_are_kept_on_disk_only_where_that_is_asked_for(monkeypatch, saved):
    from localspec.core import codec
    from localspec.runtime import Runtime, open_from_fields

    kept = []

    def note(runtime):
        kept.append(runtime)

    monkeypatch.setattr(Runtime, "keep_states", note)
    options = codec.encode(Options(model="demo", save_states=saved))
    runtime = open_from_fields(options, lambda event: None, lambda: False)
    runtime.close()
    assert kept == ([runtime] if saved else [])


def test_the_interfaces_process_never_loads_the_engines_libraries():
    code = (
        "import sys; import tui.in_terminal, localspec.engine.client, localspec.cli.chat;"
        "sys.exit('llama_cpp' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
