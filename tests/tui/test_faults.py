"""What nobody foresaw in a worker: it is reported, and the chat goes on."""

import errno
import re
from pathlib import Path

import pytest
from fake_engine import Script
from locked import lock
from textual import work
from textual.widgets import Input

import tui
from localspec.core.files import paths
from localspec.models.catalog.hf_cache import repo_folder
from tui.screens.chat import ChatScreen
from tui.session.reply_task import ReplyTask


async def broken(*_):
    raise PermissionError(errno.EACCES, "Permission denied", "/a/b")


STARTS = {
    "the app": lambda c: c.app.run_worker(broken()),
    "a screen": lambda c: c.app.screen.run_worker(broken(), group="any", exclusive=True),
    "a widget": lambda c: c.composer.run_worker(broken),
    "a method": lambda c: work(broken)(c.app.screen),
    "a screen over the chat": lambda c: c.app.screen.run_worker(broken()),
}


@pytest.mark.parametrize("starts", STARTS)
async def test_the_chat_outlives_a_fault_in_any_worker_and_reports_it(chat, outlived, starts):
    async with chat(Script("Fine.")) as c:
        if "over" in starts:
            await c.pilot.press("ctrl+s")
            await c.until(lambda: not isinstance(c.app.screen, ChatScreen))
        STARTS[starts](c)
        await c.until(lambda: outlived)
        if "over" in starts:
            await c.leave()
        await c.until(lambda: "a bug in localspec: PermissionError" in c.flowing_text)
        await c.ask("Are you there?")
        assert "Fine." in c.screen_text
    assert "Permission denied" in (paths.state_dir() / "defect.log").read_text()
    assert [type(error) for error in outlived] == [PermissionError]
    outlived.clear()


async def test_a_fault_that_comes_again_and_again_is_told_once(chat, outlived):
    async with chat() as c:
        for _ in range(3):
            c.app.run_worker(broken())
        await c.until(lambda: len(outlived) == 3)
        await c.sees("a bug in localspec")
        await c.ready()
        assert c.flowing_text.count("a bug in localspec") == 1
    outlived.clear()


async def test_what_the_user_does_again_is_told_again(chat, outlived):
    async with chat(Script("Fine.")) as c:
        c.app.run_worker(broken())
        await c.until(lambda: c.flowing_text.count("a bug in localspec") == 1)
        await c.ask("Once more")
        c.app.run_worker(broken())
        await c.until(lambda: c.flowing_text.count("a bug in localspec") == 2)
    outlived.clear()


async def test_without_the_worker_that_makes_replies_the_interface_ends(chat, monkeypatch):
    monkeypatch.setattr(ReplyTask, "run", broken)
    with pytest.raises(Exception, match="Permission denied"):
        async with chat(ready=False) as c:
            await c.until(lambda: not c.app.is_running)


def test_no_worker_hides_its_faults():
    """All are reported by the app, in one place, but those that a worker keeps to itself."""
    files = Path(tui.__file__).parent.rglob("*.py")
    assert not [file for file in files if re.search("exit_on_error", file.read_text("utf-8"))]


# -- folders that the user may not enter ---------------------------------------------------------


async def test_the_chat_starts_where_folders_of_other_programs_are_closed(
    chat, monkeypatch, tmp_path
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    closed = (".cursor", ".config/Claude", ".config/Code/User", ".lmstudio")
    for name in closed:
        (tmp_path / name).mkdir(parents=True)
    lock(monkeypatch, *(tmp_path / name for name in closed))
    async with chat(Script("Fine.")) as c:
        await c.ask("Hello")
        assert "Fine." in c.screen_text


@pytest.mark.parametrize("typed", ["{locked}/models/", "{locked}/m.gguf", "~{long}", "/tmp/{long}"])
async def test_a_path_that_cannot_be_looked_at_names_no_model(chat, monkeypatch, tmp_path, typed):
    locked = tmp_path / "locked"
    (locked / "models").mkdir(parents=True)
    lock(monkeypatch, locked)
    async with chat() as c:
        await c.pilot.press("f4")
        await c.sees("demo")
        c.app.screen.query_one(Input).value = typed.format(locked=locked, long="z" * 300)
        await c.sees("no model matches; type a path")
        await c.until(lambda: not [one for one in c.app.workers if one.group == "typed"])


async def test_the_models_are_listed_where_the_working_folder_was_deleted(
    chat, monkeypatch, tmp_path
):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    async with chat() as c:
        gone.rmdir()
        with pytest.raises(FileNotFoundError):
            Path.cwd()
        await c.pilot.press("f4")
        await c.sees("demo")


async def test_a_model_in_a_folder_of_somebody_else_is_not_here(chat, monkeypatch):
    folder = repo_folder("Qwen/Qwen3-8B-GGUF")
    (folder / "snapshots" / ("a" * 40)).mkdir(parents=True)
    (folder / "blobs").mkdir()
    lock(monkeypatch, folder)
    async with chat(size=(120, 50)) as c:
        await c.pilot.press("f4")
        await c.sees("qwen3-8b")
        line = next(line for line in c.screen_text.splitlines() if "qwen3-8b" in line)
        assert " no " in line
