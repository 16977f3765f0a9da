"""A real model, a real grammar and a real server of tools, as `run` and the plain chat use them."""

import dataclasses
import json
import os
import subprocess
import sys

import click
import psutil
import pytest
from mcp_servers import GOOD, LIGHT

from localspec import Message, Options, ReplyRequest, Runtime, Sampling
from localspec.chats.calls import reply_messages
from localspec.cli.acting import acting, after_calls
from localspec.cli.flags import PRESET
from localspec.config import presets
from localspec.config.settings import settings
from localspec.core.errors import UsageError
from localspec.core.files import paths
from localspec.grammar import tools as grammar_tools


@pytest.fixture
def maths(tmp_path, monkeypatch):
    """A server whose tools are add and sleep."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    write(tmp_path, LIGHT)


def write(folder, program):
    """A server called maths, in mcp.json."""
    (folder / "server.py").write_text(program)
    entry = {"command": sys.executable, "args": [str(folder / "server.py")]}
    file = paths.make(paths.config_dir()) / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"maths": entry}}))


def test_a_model_calls_a_tool_and_reads_its_result(tmp_path):
    write(tmp_path, GOOD)  # which has its protocol from the library
    question = ReplyRequest(
        (Message("user", "Add 20 and 22."),), sampling=Sampling(temperature=0), seed=1
    )
    with (
        acting(("maths/add",), None, lambda: False) as act,
        Runtime.open(Options(model="demo", context=2048)) as runtime,
    ):
        act.context = runtime.info.context
        request = act.request(question)
        # The demo was not trained to call: the grammar leaves it no choice.
        must = grammar_tools.spec([act.tools.tools[0].as_openai], choice="required", several=False)
        written = act.reader(request)
        for event in runtime.submit(dataclasses.replace(request, grammar=must, max_tokens=200)):
            written.take(event)
        assert written.act, written.text
        assert written.said == ""
        (call,) = act.run(written)
        numbers = json.loads(call.arguments)
        assert call.result == f"the sum is {numbers['a'] + numbers['b']}"
        followed = after_calls(request, written, [call])
        assert followed.messages[1:] == tuple(reply_messages(written.text, [call], written.at))
        plain = dataclasses.replace(followed, tools=None, grammar=None, markers=False)
        assert runtime.answer(dataclasses.replace(plain, max_tokens=20)).tokens


def test_only_tools_that_a_flag_names_are_offered(maths):
    with acting(("maths/add",), None, lambda: False) as act:
        assert [tool.place for tool in act.tools.tools] == ["maths/add"]
    for name in ("maths/nothing", "other/add", "add"):
        with pytest.raises(UsageError), acting((name,), None, lambda: False):
            pass


def test_run_starts_its_servers_prints_json_alone_and_leaves_no_server(tmp_path, monkeypatch):
    """The command runs as a program: what a server writes must not reach its standard output."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    pid = tmp_path / "pid"
    noted = f"import os\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\n"
    write(tmp_path, f"{noted}os.system('echo noise >&2')\n{LIGHT}")
    command = ["run", "-m", "demo", "Hello!", "-n", "8", "--threads", "1", "--json"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "localspec", *command, "--allow-tool", "maths/add"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["text"]
    assert not psutil.pid_exists(int(pid.read_text()))


@pytest.mark.slow
def test_tools_that_the_settings_leave_out_are_not_offered_by_flags(maths):
    file = paths.config_dir() / "config.toml"
    file.write_text('tools = "maths/add"\n')
    with acting(("maths/*",), None, lambda: False) as act:
        assert [tool.place for tool in act.tools.tools] == ["maths/add"]
    refused = "maths/sleep is left out by the setting tools of config.toml"
    with pytest.raises(UsageError, match=refused), acting(("maths/sleep",), None, lambda: False):
        pass
    file.write_text('tools = "none"\n')
    settings.cache_clear()
    with pytest.raises(UsageError, match="left out"), acting(("maths/*",), None, lambda: False):
        pass


def test_the_tools_of_a_preset_hold_for_flags_and_allow_nothing_by_themselves(maths, capsys):
    config = paths.config_dir() / "config.toml"
    config.write_text('tools = "none"\n[presets.sums]\ntools = "maths/add"\n')
    with click.Context(click.Command("run")) as context:
        context.meta[PRESET] = presets.called("sums")
        with acting(("maths/*",), None, lambda: False) as act:
            assert [tool.place for tool in act.tools.tools] == ["maths/add"]
        assert not capsys.readouterr().err
        with acting((), None, lambda: False) as act:
            assert act.tools is None
    told = "the tools of preset sums are not called here without --allow-tool maths/add"
    assert told in capsys.readouterr().err


def test_without_flags_nothing_is_offered_and_nothing_started(maths):
    with acting((), None, lambda: False) as act:
        request = ReplyRequest((Message("user", "hi"),))
        assert act.request(request) is request
        assert act.toolbox is None
