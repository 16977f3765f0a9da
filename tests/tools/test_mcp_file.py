"""mcp.json: the forms that are read, and what is refused."""

import json
from pathlib import Path

import pytest
from locked import lock

from localspec.core.errors import LocalspecError, UsageError
from localspec.tools import servers_file
from localspec.tools.values import prefix


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    folder = tmp_path / "home" / "config"
    folder.mkdir(parents=True, mode=0o700)
    return tmp_path


def write(home, table, key="mcpServers"):
    file = home / "home" / "config" / "mcp.json"
    file.write_text(json.dumps({key: table}))
    return file


def test_without_a_file_there_are_no_servers():
    assert servers_file.servers() == ()


def test_servers_of_claude_desktop_s_form_are_read(home, monkeypatch):
    monkeypatch.setenv("TOKEN", "secret")
    git = {"command": "uvx", "args": ["mcp-git"], "env": {"KEY": "${env:TOKEN}"}}
    write(home, {"git": git | {"cwd": "/of/${env:TOKEN}"}})
    (spec,) = servers_file.servers()
    assert (spec.name, spec.command, spec.args) == ("git", "uvx", ("mcp-git",))
    assert (spec.env, spec.cwd) == ({"KEY": "secret"}, "/of/secret")


def test_servers_of_vs_code_s_form_are_read(home):
    url = "https://a:pass@example.org/key/mcp?key=1"
    write(home, {"web": {"type": "http", "url": url}}, "servers")
    (spec,) = servers_file.servers()
    assert spec.where == "https://example.org"


def test_a_server_that_has_to_be_downloaded_may_be_given_longer_to_start(home):
    write(home, {"slow": {"command": "npx", "startup_timeout": 300}, "git": {"command": "uvx"}})
    slow, git = servers_file.servers()
    assert (slow.starting, git.starting) == (300.0, servers_file.LONGEST_START)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, 'needs either "command" or "url"'),
        ({"command": "x", "url": "http://y"}, 'needs either "command" or "url"'),
        ({"url": "file:///etc/passwd"}, "does not begin with http"),
        ({"url": "http://[::1/mcp"}, "the url of odd is not the address of a server"),
        ({"command": "x", "args": "y"}, "are not a list of texts"),
        ({"command": "x", "env": {"A": 1}}, "not an object of texts"),
        ({"command": "${env:NOT_SET_AT_ALL}"}, "NOT_SET_AT_ALL, which is not set"),
        ({"command": "${input:key}"}, "only VS Code can"),
        ({"url": "http://x", "type": "sse"}, "are not supported"),
        ({"command": "x", "timeout": -1}, "the timeout of odd is not a number of seconds"),
        ({"command": "x", "startup_timeout": 0}, "the startup_timeout of odd is not a number"),
        (["x"], "is not an object"),
    ],
)
def test_an_entry_that_means_nothing_is_refused_by_name(home, entry, said):
    write(home, {"odd": entry})
    with pytest.raises(UsageError, match=r"mcp\.json") as error:
        servers_file.servers()
    assert "odd" in str(error.value)
    assert said in str(error.value)


@pytest.mark.parametrize("name", ["", "a/b", "x" * 40, "\x1b[31m"])
def test_a_name_that_could_be_mistaken_is_refused(home, name):
    write(home, {name: {"command": "x"}})
    with pytest.raises(UsageError, match="no name for a server"):
        servers_file.servers()


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("my", "my__fs", True),
        ("my__fs", "my", True),
        ("my", "my_", True),
        ("my fs", "my.fs", True),
        ("my", "my_fs", False),
        ("my", "myfs", False),
    ],
)
def test_servers_whose_tools_could_have_one_name_are_refused(home, one, other, alike):
    write(home, {one: {"command": "x"}, other: {"command": "y"}})
    names = {prefix(one) + tool for tool in ("read", "fs__read", "_read")}
    assert bool(names & {prefix(other) + tool for tool in ("read", "fs__read", "_read")}) == alike
    if not alike:
        assert len(servers_file.servers()) == 2
        return
    on, off = {"command": "x"}, {"command": "x", "disabled": True}  # the chat can switch it on
    for first, second in ((on, on), (on, off), (off, off)):
        write(home, {one: first, other: second})
        with pytest.raises(UsageError, match="could have the same name; rename one server"):
            servers_file.servers()


def test_a_server_whose_tools_could_have_the_name_of_anothers_is_not_taken_over(home):
    write(home, {"my": {"command": "x"}})
    other = home / ".cursor" / "mcp.json"
    other.parent.mkdir(parents=True)
    other.write_text(json.dumps({"mcpServers": {"my__fs": {"command": "y"}}}))
    added, refused = servers_file.take_over()
    assert added == []
    assert "could have the same name" in refused[0]


def test_a_file_that_others_may_write_to_is_refused_since_it_names_programs(home):
    write(home, {"git": {"command": "uvx"}}).chmod(0o666)
    with pytest.raises(UsageError, match="others may write to "):
        servers_file.servers()


def test_the_working_directory_is_not_looked_at(home, monkeypatch, tmp_path):
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"evil": {"command": "x"}}}')
    monkeypatch.chdir(tmp_path)
    assert servers_file.servers() == ()


def test_servers_of_other_programs_are_offered_once(home):
    assert servers_file.offer_once() == ""
    other = home / ".cursor" / "mcp.json"
    other.parent.mkdir()
    other.write_text("{}")
    assert servers_file.offer_once() == "Cursor"
    assert servers_file.offer_once() == ""


def test_servers_of_other_programs_are_taken_over_and_own_ones_stay(home):
    write(home, {"git": {"command": "mine"}})
    other = home / ".config" / "Claude" / "claude_desktop_config.json"
    other.parent.mkdir(parents=True)
    table = {"git": {"command": "theirs"}, "fetch": {"command": "uvx"}, "odd": {}}
    other.write_text(json.dumps({"mcpServers": table}))
    added, refused = servers_file.take_over()
    assert added == ["fetch"]
    assert "odd" in refused[0]
    assert {s.name: s.command for s in servers_file.servers()} == {"git": "mine", "fetch": "uvx"}


def test_a_file_that_is_linked_from_elsewhere_stays_so(home, tmp_path):
    mine = write(home, {"git": {"command": "mine"}})
    mine.rename(tmp_path / "dotfiles.json")
    mine.symlink_to(tmp_path / "dotfiles.json")
    other = home / ".cursor" / "mcp.json"
    other.parent.mkdir()
    other.write_text('{"mcpServers": {"fetch": {"command": "uvx"}}}')
    assert servers_file.take_over() == (["fetch"], [])
    assert mine.is_symlink()
    assert {s.name for s in servers_file.servers()} == {"git", "fetch"}


def test_half_of_a_character_in_another_programs_file_is_refused_by_name(home):
    path = servers_file.path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"mcpServers": {}, "note": "\\ud83d"}')
    other = home / ".cursor" / "mcp.json"
    other.parent.mkdir()
    other.write_text('{"mcpServers": {"odd": {"command": "x\\ud83d"}, "even": {"command": "x"}}}')
    added, refused = servers_file.take_over()
    assert added == ["even"]
    assert refused == ["Cursor: odd has half of a character, which no program can be given"]
    assert json.loads(path.read_text(encoding="utf-8"))["note"] == "\ud83d"


def test_what_else_the_file_has_stays_and_no_more_are_added_than_it_may_have(home):
    path = servers_file.path()
    path.parent.mkdir(parents=True, exist_ok=True)
    mine = {"inputs": [{"id": "k"}], "servers": {"git": {"command": "mine"}}, "x": 1}
    path.write_text(json.dumps(mine))
    other = home / ".cursor" / "mcp.json"
    other.parent.mkdir()
    theirs = {f"s{n}": {"command": "x"} for n in range(servers_file.MOST_SERVERS)}
    other.write_text(json.dumps({"mcpServers": theirs}))
    added, refused = servers_file.take_over()
    assert len(added) == servers_file.MOST_SERVERS - 1
    assert refused == ["Cursor: s31 would be more than 32 servers"]
    assert len(servers_file.servers()) == servers_file.MOST_SERVERS
    kept = json.loads(path.read_text())
    assert (kept["inputs"], kept["x"], list(kept)) == (mine["inputs"], 1, list(mine))
    assert kept["servers"]["git"] == {"command": "mine"}


def test_where_there_is_no_home_there_are_no_other_programs(monkeypatch):
    monkeypatch.setattr(Path, "home", no_home)
    assert servers_file.elsewhere() == {}


def test_programs_whose_settings_may_not_be_looked_at_have_no_servers(home, monkeypatch):
    for name in (".cursor", ".config/Claude"):
        (home / name).mkdir(parents=True)
    (home / ".lmstudio").mkdir()
    (home / ".lmstudio" / "mcp.json").write_text("{}")
    lock(monkeypatch, home / ".cursor", home / ".config" / "Claude")
    assert [*servers_file.elsewhere()] == ["LM Studio"]
    assert servers_file.offer_once() == "LM Studio"


def test_a_folder_of_ours_that_may_not_be_looked_at_is_one_sentence(home, monkeypatch):
    (home / ".lmstudio").mkdir()
    (home / ".lmstudio" / "mcp.json").write_text("{}")
    lock(monkeypatch, home / "home" / "config")
    with pytest.raises(LocalspecError, match=r"cannot use .*config/mcp\.json: Permission denied"):
        servers_file.offer_once()


def no_home():
    raise RuntimeError("Could not determine home directory.")
