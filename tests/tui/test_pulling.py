"""Pulls from inside the chat, from a stand-in for the Hub, in the process that does them."""

import asyncio
import os
import sys
import threading

import pytest
from fake_engine import Script
from hub_server import DRAFT, TARGET, TARGET_FILE

from localspec.core.errors import OutOfMemoryError
from localspec.models.catalog import hf_cache
from localspec.models.hub import pull_planner
from localspec.models.hub import pull_process as pulling
from localspec.models.hub.pull_process import PullDone, PullFailed, PullPlanned, PullProgress
from localspec.models.memory import fit
from tui.session import pull_process
from tui.session.pull_process import PullProcess

pytest_plugins = ["hub_fixtures"]

HALF = 700_000
"""Bytes after which the Hub trickles, those of the headers counted: a pull stays under way."""


@pytest.mark.parametrize(
    "said",
    [
        PullPlanned(10, 5, "MIT", ("a note",), None),
        PullProgress(3, 10, 2, checking=False),
        PullDone(7),
        PullFailed("it cannot be", stopped=True),
    ],
)
def test_what_is_said_arrives_as_it_was(said):
    assert pulling.decode(pulling.encode(said)) == said


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b'{"said": "PullDone", "x": 1}', b"Traceback"])
def test_anything_else_is_an_error_with_a_line(line):
    with pytest.raises(Exception, match="unknown line"):
        pulling.decode(line)


@pytest.mark.parametrize(("length", "shown"), [(70_000, "x" * 70_000), (2 << 20, "more than 1 MB")])
async def test_a_long_line_of_the_pull_ends_no_interface(monkeypatch, length, shown):
    code = (
        "import sys; from localspec.models.hub.pull_process import PullFailed, encode;"
        f"sys.stdout.buffer.write(encode(PullFailed('x' * {length}, False)))"
    )
    command = [sys.executable, "-c", code], dict(os.environ)
    monkeypatch.setattr(pull_process.children, "command", lambda *_: command)
    outcome = await PullProcess().run("u/r")
    assert outcome.error
    assert shown in outcome.lines[0]


async def test_a_pair_is_pulled_while_one_chats_and_can_be_used(chat, hub, pair):
    hub.most = HALF
    async with chat(Script("One.")) as c:
        await c.type("/pull tiny")
        await c.until(lambda: "pulling tiny" in c.screen_text and "% of" in c.screen_text, 20)
        await c.ask("Hello")
        await c.sees("One.")
        await c.type("/pull tiny")
        await c.until(lambda: "tiny is being downloaded already" in c.stats)
        hub.most = None
        await c.until(lambda: "tiny is here" in c.screen_text, 20)
        assert "pulling" not in c.screen_text
    assert hf_cache.find_file(TARGET, TARGET_FILE) is not None


@pytest.mark.slow
async def test_a_second_pull_waits_for_the_first_and_begins_when_it_has_ended(
    chat, hub, pair, models
):
    other = "org/Other-GGUF"
    hub.repo(other, {"Other-Q8_0.gguf": models.draft})
    hub.most = HALF
    async with chat() as c:
        await c.type("/pull tiny")
        await c.until(lambda: hf_cache.partials(TARGET), 20)
        await c.type(f"/pull {other}")
        await c.until(lambda: f"{other} is downloaded next, after tiny" in c.stats)
        await c.sees("1 of 2: pulling tiny")
        assert not hf_cache.partials(other)
        await c.pilot.press("escape")
        await c.until(lambda: "/pull tiny continues from there" in c.screen_text, 20)
        hub.most = None
        await c.until(lambda: f"{other} is here" in c.screen_text, 20)
        assert "pulling" not in c.screen_text


@pytest.mark.slow
async def test_a_draft_for_what_is_being_pulled_without_one_waits_in_line(chat, hub, pair):
    hub.most = HALF
    async with chat() as c:
        await c.type(f"/pull {TARGET}")
        pulls = c.app.screen.actions.pulls
        await c.until(lambda: pulls.running)
        await c.type(f"/pull {TARGET} {DRAFT}")
        await c.until(lambda: "is downloaded next" in c.stats)
        await c.type(f"/pull {TARGET} {DRAFT}")
        await c.until(lambda: "is being downloaded already" in c.stats)
        await pulls.close()


async def test_a_pull_that_is_stopped_goes_on_where_it_stopped(chat, hub, pair):
    hub.most = HALF
    async with chat() as c:
        await c.type("/pull tiny")
        await c.until(lambda: any(p.stat().st_size for p in hf_cache.partials(TARGET)), 20)
        await c.pilot.press("escape")
        await c.until(lambda: "/pull tiny continues from there" in c.screen_text, 20)
        (part,) = hf_cache.partials(TARGET)
        have = part.stat().st_size
        hub.forget()
        hub.most = None
        await c.type("/pull tiny")
        await c.until(lambda: "tiny is here" in c.screen_text, 20)
    assert have
    assert f"bytes={have}-" in {request.range for request in hub.downloads()}


async def test_a_closed_chat_ends_its_pull_and_keeps_what_has_arrived(chat, hub, pair):
    hub.most = HALF
    async with chat() as c:
        await c.type("/pull tiny")
        await c.until(lambda: hf_cache.partials(TARGET), 20)
        process = c.app.screen.actions.pulls.process._process
    assert process.returncode is not None
    assert hf_cache.partials(TARGET)


async def test_whoever_is_gone_without_a_word_leaves_no_pull_behind(hub, pair):
    hub.most = HALF
    puller = PullProcess()
    running = asyncio.ensure_future(puller.run("tiny"))
    begun = asyncio.Event()
    puller.on_change = lambda: puller._going and begun.set()
    await begun.wait()
    running.cancel()
    process = puller._process
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "no model called 'nothing'"),
        ("org/None-GGUF", "org/None-GGUF"),
    ],
)
async def test_what_cannot_be_had_is_one_line(hub, pair, name, said):
    outcome = await PullProcess().run(name)
    assert outcome.error
    (line,) = outcome.lines
    assert line.startswith(f"pulling {name}: ")
    assert said in line
    assert "\n" not in line


async def test_what_is_too_big_is_pulled_only_by_someone_who_insists(hub, pair, monkeypatch):
    monkeypatch.setattr(fit, "quick_verdict", lambda *_: fit.TOO_BIG)
    monkeypatch.setattr(pull_planner, "quick_verdict", lambda *_: fit.TOO_BIG)
    said, stop = [], threading.Event()
    monkeypatch.setattr(pulling._Reporter, "write", lambda _, what: said.append(what))
    with pytest.raises(OutOfMemoryError, match="too big"):
        pulling._pull("tiny", None, pulling._Reporter(), stop, force=False)
    assert isinstance(said[-1], PullPlanned)
    pulling._pull("tiny", None, pulling._Reporter(), stop, force=True)
    assert isinstance(said[-1], PullDone)
    assert pulling.arguments("x", None, force=True) == ["--force", "x"]


async def test_a_gated_repository_says_how_to_get_in(hub, pair, models):
    hub.repos[DRAFT].gated = True
    (line,) = (await PullProcess().run("tiny")).lines
    assert "huggingface.co" in line or "HF_TOKEN" in line or "hf auth login" in line


@pytest.mark.slow  # it is patient with a Hub that does not answer
async def test_without_a_network_it_says_so(hub, pair, monkeypatch):
    hub.close()
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    (line,) = (await PullProcess().run("tiny")).lines
    assert "reach" in line
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (line,) = (await PullProcess().run("tiny")).lines
    assert "HF_HUB_OFFLINE" in line


async def test_a_disk_that_takes_nothing_is_named(hub, pair, hf_home):
    hf_home.mkdir()
    (hf_home / "hub").write_text("a file where a folder should be")
    (line,) = (await PullProcess().run("tiny")).lines
    assert "HF_HOME" in line
