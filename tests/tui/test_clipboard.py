"""The clipboard by programs, for terminals that do not take OSC 52."""

import sys

import pytest
from fake_engine import Script

from tui.terminal import desktop
from tui.terminal.desktop import copy, programs


@pytest.mark.parametrize(
    ("environment", "platform", "names"),
    [
        ({}, "linux", []),
        ({"TMUX": "x", "WAYLAND_DISPLAY": "y"}, "linux", ["tmux", "wl-copy"]),
        ({"DISPLAY": ":0"}, "linux", ["xclip", "xsel"]),
        ({"WSL_DISTRO_NAME": "d"}, "linux", ["clip.exe"]),
        ({}, "darwin", ["pbcopy"]),
        ({"SSH_CONNECTION": "a b"}, "darwin", []),
        ({"SSH_CONNECTION": "a b", "TMUX": "x"}, "win32", ["tmux"]),
    ],
)
def test_the_programs_that_reach_the_person(environment, platform, names):
    assert [program.words[0] for program in programs(environment, platform)] == names


def test_the_first_program_that_takes_the_text_gets_it(tmp_path, monkeypatch):
    file = tmp_path / "taken"
    fails = (sys.executable, "-c", "raise SystemExit(1)")
    code = f"import sys; open({str(file)!r}, 'wb').write(sys.stdin.buffer.read())"
    takes = (sys.executable, "-c", code)
    found = [desktop.ClipboardProgram(words) for words in (("no-such-program",), fails, takes)]
    monkeypatch.setattr(desktop, "programs", lambda *_: iter(found))
    assert copy("größer") == sys.executable
    assert file.read_text(encoding="utf-8") == "größer"
    monkeypatch.setattr(desktop, "programs", lambda *_: iter(found[:2]))
    assert copy("x") is None


async def test_whether_only_the_terminal_was_asked_is_said(chat, monkeypatch):
    async with chat() as c:
        c.app.copy("x", "the selection")
        await c.until(lambda: "copied the selection by the terminal (OSC 52)" in c.stats)
        monkeypatch.setattr(desktop, "copy", lambda _: "xclip")
        c.app.copy("x", "the selection")
        await c.until(lambda: c.stats.strip() == "copied the selection")


async def test_what_is_copied_has_no_control_characters_that_a_shell_obeys(chat):
    async with chat(Script("a\x1b[31mb\x07\x9b1\tc\nd")) as c:
        await c.ask("Hello")
        c.app.copy(c.replies[-1].text, "the reply")
        assert c.app.clipboard == "a[31mb1\tc\nd"
