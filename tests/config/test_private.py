"""Files that belong to the user alone, and texts that must not stand in a log."""

from __future__ import annotations

import errno
import logging
import math
import os
import sys
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from localspec.bench import history
from localspec.bench.speedup import Bench
from localspec.cli import call
from localspec.compiling import own_build
from localspec.config import running_servers, settings
from localspec.core.errors import LocalspecError, UsageError
from localspec.core.files import checked, closed, measured, paths, private, whole_file
from localspec.core.files.private import opener, without_secrets, without_user
from localspec.core.processes import crash, starts
from localspec.llama import library
from localspec.loading.policy import MeasuredControl
from localspec.models.catalog.catalog import catalog
from localspec.policy.storage import Knowledge

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture(autouse=True)
def _generous() -> object:
    """A shell whose files everybody may read and write."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_log_is_for_its_owner_from_the_first_byte_and_an_older_one_becomes_so(
    tmp_path: Path,
) -> None:
    old = tmp_path / "old.log"
    old.write_text("older\n")
    assert mode(old) == 0o666
    for path in (old, tmp_path / "new.log"):
        with open(path, "a", opener=opener) as file:
            assert mode(path) == 0o600
            file.write("line\n")
    assert old.read_text() == "older\nline\n"


def test_the_log_of_llama_cpp_is_private(tmp_path: Path) -> None:
    library.log_to(tmp_path / "llama.log")
    try:
        library.logger.warning("a line")
        assert mode(tmp_path / "llama.log") == 0o600
    finally:
        for handler in library.logger.handlers[:]:
            library.logger.removeHandler(handler)
            handler.close()
        library.logger.addHandler(logging.NullHandler())


@pytest.mark.parametrize("bits", [0o770, 0o707, 0o777])
def test_a_folder_that_others_may_write_to_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int
) -> None:
    monkeypatch.setattr(private, "_group_of_one", lambda place, group: False)
    folder = paths.make(tmp_path / "home" / "data")
    folder.chmod(bits)
    with pytest.raises(LocalspecError, match=f"chmod 700 '{folder}'"):
        paths.make(folder)
    folder.chmod(0o700)
    assert paths.make(folder) == folder


def test_a_folder_that_the_users_own_group_may_write_to_is_the_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders are writable so where users have a group of their own: Debian 13, Ubuntu, Fedora."""
    monkeypatch.setattr(private, "_group_of_one", lambda place, group: True)
    folder = paths.make(tmp_path / "home" / "data")
    folder.chmod(0o770)
    assert paths.make(folder) == folder
    paths.make_parent(folder / "llama-proof.json")


def test_the_command_line_says_so_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = paths.data_dir()
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert call(["chats", "list"]) == 1
    said = capfd.readouterr().err
    assert said.startswith("localspec: others may write to ")
    assert said.count("\n") == 1


def test_a_new_folder_is_for_its_owner_only_and_so_is_every_folder_that_it_is_in() -> None:
    folder = paths.make(paths.cache_dir() / "rpc-plugin" / "key")
    home = paths.cache_dir().parent
    made = (folder, folder.parent, paths.cache_dir(), home)
    assert [mode(place) for place in made] == [0o700] * 4


def test_a_file_in_the_place_of_a_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing" / "folder")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "nowhere"):
        with pytest.raises(LocalspecError, match=r"^cannot make .*; set LOCALSPEC_HOME"):
            paths.make(folder)


@pytest.mark.parametrize("above", ["cache", "."])
def test_an_open_folder_of_ours_above_is_refused_too(above: str) -> None:
    folder = paths.make(paths.cache_dir() / "costs")
    place = paths.cache_dir().parent / above
    place.chmod(0o777)
    with pytest.raises(LocalspecError, match=f"chmod 700 '{place}'"):
        paths.make(folder)


def test_a_home_in_a_shared_folder_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "tmp"))
    assert paths.make(paths.cache_dir() / "costs").is_dir()


def test_measurements_are_not_written_through_a_link_to_an_open_folder(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    paths.make(paths.cache_dir())
    link = paths.cache_dir() / "costs"
    link.symlink_to(tmp_path / "open")
    with pytest.raises(PermissionError, match="others may write"):
        history.add(link / "history.jsonl", "setting", Bench((), 0.0, {}, {}), threads=1)
    control = MeasuredControl(*[Mock()] * 4, link / "costs.json", Knowledge(), Mock())
    with pytest.raises(PermissionError, match="others may write"):
        control.save()
    with pytest.raises(PermissionError, match="others may write"):
        paths.make_parent(link / "any")
    assert not [*(tmp_path / "open").iterdir()]


def test_a_file_that_is_replaced_was_never_open_to_others(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with whole_file.replacing(path) as file:
        parts = [p for p in tmp_path.iterdir() if p != path]
        assert [mode(p) for p in parts] == [0o600]
        file.write(b"whole")
    assert path.read_bytes() == b"whole"
    assert mode(path) == 0o600
    with pytest.raises(ZeroDivisionError), whole_file.replacing(path) as file:
        file.write(b"%d" % (1 // 0))
    assert path.read_bytes() == b"whole"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("token hf_abcdefghijKLMNOP1234 refused", "token hf_*** refused"),
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer ***"),
        ("proxy http://user:pa55@proxy:80 fails", "proxy http://***@proxy:80 fails"),
        ("http://bob:@mirror and http://:key@m/x", "http://***@mirror and http://***@m/x"),
        ("http://a:p@ss:w@mirror/models", "http://***@mirror/models"),
        ("https://token@mirror/a@b", "https://***@mirror/a@b"),
        ("https://mirror/models/user@home", "https://mirror/models/user@home"),
        ("GET /x?a=1&Signature=abc~/d&b=2", "GET /x?a=1&Signature=***&b=2"),
        ("http://bob:it's@mirror/models", "http://***@mirror/models"),
        ("http://bob:se/cr?e#t@host:8080/v1: no", "http://***@host:8080/v1: no"),
        ("http://host:80/models/@user", "http://host:80/models/@user"),
        ("http://[::1]:80/x@y", "http://[::1]:80/x@y"),
        ("GET /x?access_token=a1&sig=b2", "GET /x?access_token=***&sig=***"),
        ("an ordinary sentence: 3 tokens = 3", "an ordinary sentence: 3 tokens = 3"),
    ],
)
def test_logs_and_messages_hold_no_secrets(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://bob:pa55@mirror:80/a", "http://mirror:80/a"),
        ("https://token@mirror/a@b", "https://mirror/a@b"),
        ("https://mirror.example/@team/hub", "https://mirror.example/@team/hub"),
        ("http://bob:se cret@127.0.0.1:9", "http://127.0.0.1:9"),
        ("http://bob:12345/x@host", "http://***@host"),
        ("http://bob:se/cret@host/https://hub", "http://***@host/https://hub"),
        ("http://u:pw@mirror:9/https://hub", "http://mirror:9/https://hub"),
        ("http://mirror/https://u:pw@hub", "http://mirror/https://***@hub"),
        ("http://u:pw@mirror/https://u:pw@hub", "http://***@hub"),
        ("https://mirror/x?token=pw&a=1", "https://mirror/x?token=***&a=1"),
        ("bob:pa55@mirror", "mirror"),
        ("bob:pa55@https://mirror", "https://mirror"),
        ("bob:pa/ss@mirror", "***@mirror"),
        ("http:///bob:pa55@mirror", "http://***@mirror"),
        ("http://bob:a://b@mirror", "http://***@mirror"),
    ],
)
def test_an_address_is_told_without_what_opens_it(text: str, shown: str) -> None:
    assert without_user(text) == shown


def test_a_defect_is_reported_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from localspec.cli import cli

    def broken(**_: object) -> None:
        raise KeyError("hf_abcdefghijKLMNOP1234")

    monkeypatch.setattr(cli, "main", broken)
    assert call(["models"]) == 1
    assert "abcdefghij" not in capfd.readouterr().err
    log = paths.state_dir() / "defect.log"
    assert "abcdefghij" not in log.read_text()
    assert mode(log) == 0o600


# -- what is read in folders of ours


def servers_of_mcp() -> object:
    from localspec.tools import servers_file

    return servers_file.servers()


def test_nothing_is_read_in_a_folder_of_ours_that_others_may_write_to(tmp_path: Path) -> None:
    folder = paths.make(paths.config_dir())
    (folder / "config.toml").write_text('api_key_command = "id"\n')
    (folder / "mcp.json").write_text('{"mcpServers": {"x": {"command": "id"}}}')
    (folder / "models.toml").write_text('[mine]\ntarget = "x.gguf"\n')
    for file in folder.iterdir():
        file.chmod(0o644)
    readers = (lambda: settings.read(settings.file()), servers_of_mcp, catalog.__wrapped__)
    for reader in readers:
        assert reader()
    for place in (folder, folder.parent, folder.parent.parent):
        before = mode(place)
        place.chmod(0o777)
        for reader in readers:
            with pytest.raises(UsageError, match=f"others may write to {place}.*chmod go-w"):
                reader()
        place.chmod(before)
    for file in folder.iterdir():
        file.chmod(0o666)
    for reader in readers:
        with pytest.raises(UsageError, match=r"others may write to .*(toml|json)"):
            reader()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
@pytest.mark.parametrize("name", ["config", "config/mcp.json"])
def test_nothing_of_another_user_is_read_for_root_either(name: str) -> None:
    folder = paths.make(paths.config_dir())
    (folder / "mcp.json").write_text('{"mcpServers": {"x": {"command": "id"}}}')
    (folder / "mcp.json").chmod(0o644)
    os.chown(folder.parent / name, 65534, 65534)
    with pytest.raises(UsageError, match="belongs to another user"):
        servers_of_mcp()


def test_links_to_the_users_own_files_are_followed_and_others_cannot_exchange_them(
    tmp_path: Path,
) -> None:
    """Settings are often linked from dotfiles."""
    dotfiles = paths.make(tmp_path / "dotfiles")
    (dotfiles / "config.toml").write_text("seed = 3\n")
    (dotfiles / "config.toml").chmod(0o644)
    (tmp_path / "way").mkdir()
    (tmp_path / "way").chmod(0o755)
    (tmp_path / "way" / "on").symlink_to("../dotfiles")
    file = paths.make(paths.config_dir()) / "config.toml"
    file.symlink_to(tmp_path / "way" / "on" / "config.toml")
    assert settings.read(file) == {"seed": 3}
    for place in ("way", "dotfiles"):
        (tmp_path / place).chmod(0o777)
        with pytest.raises(UsageError, match=f"others may write to {tmp_path / place}"):
            settings.read(file)
        (tmp_path / place).chmod(0o755)
    file.unlink()
    file.symlink_to(file)
    with pytest.raises(UsageError, match="cannot read"):
        settings.read(file)


def test_measurements_in_a_folder_of_ours_that_others_may_write_to_are_none(
    tmp_path: Path,
) -> None:
    folder = paths.make(paths.cache_dir() / "costs")
    file = folder / "facts.json"
    measured.write(file, {"passed": True}, mode=0o644)
    assert mode(file) == 0o644, "whatever the umask"
    for place in (file, folder):
        assert measured.parsed(file) == closed.parsed(file) == {"passed": True}
        before = mode(place)
        place.chmod(0o777)
        for read in (measured.parsed, closed.parsed):
            with pytest.raises(PermissionError, match=f"others may write to {place}"):
                read(file)
        assert not closed.is_closed(place)
        place.chmod(before)
    file.rename(folder / "other")
    file.symlink_to("other")
    with pytest.raises(OSError, match="symbolic links"):
        measured.parsed(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
@pytest.mark.parametrize("name", [".", "facts.json"])
def test_measurements_of_another_user_are_none(name: str) -> None:
    folder = paths.make(paths.cache_dir() / "costs")
    measured.write(folder / "facts.json", {"passed": True})
    os.chown(folder / name, 65534, 65534)
    with pytest.raises(PermissionError, match="belongs to another user"):
        measured.parsed(folder / "facts.json")


def test_measurements_are_read_in_a_home_that_others_may_write_to() -> None:
    """Others who may write to a folder above could exchange the user's own files, and no more."""
    folder = paths.make(paths.cache_dir() / "costs")
    measured.write(folder / "facts.json", {"passed": True})
    above = paths.cache_dir().parent.parent
    above.chmod(0o777)
    assert measured.parsed(folder / "facts.json") == {"passed": True}
    with pytest.raises(PermissionError, match=f"others may write to {above}"):
        closed.parsed(folder / "facts.json")


def test_a_file_system_without_lists_of_rights_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for code, has in ((errno.ENOTSUP, False), (errno.EIO, None)):
        monkeypatch.setattr(os, "listxattr", Mock(side_effect=OSError(code, "no")), raising=False)
        if has is None:
            with pytest.raises(OSError, match="no"):
                private._has_list(tmp_path)
        else:
            assert private._has_list(tmp_path) == has


def test_a_server_that_runs_stays_announced_where_nothing_is_read() -> None:
    server = running_servers.RunningServer(
        "http://127.0.0.1:1",
        "demo",
        None,
        "t.gguf",
        key=False,
        pid=os.getpid(),
        began=starts.began(os.getpid()),
    )
    file = running_servers.announce(server)
    assert file is not None
    assert running_servers.running() == [server]
    file.parent.chmod(0o777)
    assert running_servers.running() == []
    assert file.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the times of Linux")
def test_a_server_stays_announced_when_the_clock_is_corrected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """psutil reckons the start of a process from that of the machine, by the clock."""
    began = starts.began(os.getpid())
    monkeypatch.setattr(psutil.Process, "create_time", lambda _: began + 30.0)
    assert starts.began(os.getpid()) == began
    assert math.isnan(starts.began(2**30))


def test_a_note_that_others_could_have_written_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_build, "CHECKOUT", "no such file")
    monkeypatch.delenv(own_build.VARIABLE, raising=False)
    own_build.note(Path("/opt/llama"))
    paths.cache_dir().chmod(0o777)
    assert own_build.noted() is None
    assert "is not used: others may write to" in own_build.passed_over()


def test_who_owns_the_code_is_known_where_its_folder_cannot_be_looked_into(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process that has given up the rights of root cannot look into root's home."""
    monkeypatch.setattr(closed, "__file__", str(tmp_path / "gone" / "closed.py"))
    closed.require(tmp_path)


@pytest.mark.parametrize(
    ("users", "root"), [("0 0 4294967295\n", 0), ("1000 1000 1\n", 65534), ("0 1000 1\n", 0)]
)
def test_root_has_the_number_of_unknown_users_where_it_is_one(
    users: str, root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container without a root of its own, folders such as / and /home are nobody's."""
    for name, text in (("_USERS", users), ("_UNKNOWN_USER", "65534\n")):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(closed, name, tmp_path / name)
    assert closed._root.__wrapped__() == root


@pytest.mark.parametrize("of_one", [True, False])
def test_settings_in_folders_of_the_users_own_group_are_read(
    monkeypatch: pytest.MonkeyPatch, *, of_one: bool
) -> None:
    monkeypatch.setattr(private, "_group_of_one", lambda place, group: of_one)
    folder = paths.make(paths.config_dir())
    (folder / "config.toml").write_text("seed = 3\n")
    (folder / "config.toml").chmod(0o664)
    folder.chmod(0o775)
    if of_one:
        assert settings.read(settings.file()) == {"seed": 3}
        return
    with pytest.raises(UsageError, match="others may write"):
        settings.read(settings.file())


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_not_waited_for_nor_read_without_end(kind: str) -> None:
    place = paths.make(paths.config_dir()) / "config.toml"
    os.mkfifo(place) if kind == "pipe" else place.symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="cannot read"):
        settings.read(place)
    for read in (lambda: closed.parsed(place), lambda: checked.content(place, 9)):
        with pytest.raises(OSError, match=r"others may write|no regular file"):
            read()
    assert crash.recent_lines(place) == ""
    with pytest.raises(OSError, match=r"No such device|no regular file"):
        open(place, "ab", opener=opener)  # noqa: SIM115 - it is not opened
