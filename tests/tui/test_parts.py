"""The parts of the interface that need no screen."""

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import tty
from pathlib import Path

import keys_page
import pytest
import terminals
from attaching import attach
from fake_engine import Script
from hypothesis import given
from hypothesis import strategies as st
from picture_files import png
from textual.app import App
from textual.events import Paste
from textual.theme import BUILTIN_THEMES

from localspec.chats import pictures
from localspec.chats.calls import SavedCall
from localspec.core.errors import UsageError
from localspec.core.events import Finished, Message, Reply, Speculation, Stats, Token
from localspec.core.logits import Sampling
from localspec.core.options import Options
from localspec.core.picture import Pixels
from localspec.core.values import Origin
from tui.app import ChatApp
from tui.in_terminal import run
from tui.input import keymap, long_text
from tui.input.attachments import AttachError, dropped, picture_named
from tui.input.completion import completions
from tui.input.long_text import EditorError, Pastes
from tui.render.lines import thumbnail
from tui.render.text import Thought, thought
from tui.session.commands import SPECS, Command, CommandError, parse
from tui.session.conversation import Conversation
from tui.session.token_runs import Kind, Run, Runs, kind_of, legend, styled
from tui.terminal import theme
from tui.terminal.theme import DARK, LIGHT, OWN_VARIABLES, borrowed, wanted


def some_stats(speculation=Speculation("on")):  # noqa: B008 - frozen
    return Stats(9, 0, 131, 50, 900, 655, 412, (), {}, 0.1, 1.0, 0.2, 0.7, speculation)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/temp 0", Command("temp", 0.0)),
        ("/temperature 1.5", Command("temp", 1.5)),
        ("/seed", Command("seed", None)),
        ("/seed 12", Command("seed", 12)),
        ("/seed -1", Command("seed", -1)),
        (f"/seed {2**64 - 1}", Command("seed", 2**64 - 1)),
        ("/?", Command("help", None)),
        ("/colors", Command("colours")),
        ("/system Be brief.\nVery.", Command("system", "Be brief.\nVery.")),
        ("/draft off", Command("draft", False)),
        ("/new", Command("new")),
        ("hello", None),
        ("/usr/bin", None),
        ("/[a-z]+/ matches", None),
        ("a /help", None),
    ],
)
def test_commands_are_told_from_messages(text, command):
    assert parse(text) == command


@pytest.mark.parametrize(
    "text",
    [
        "/nothing",
        "/temp",
        "/temp hot",
        "/temp -1",
        "/temp nan",
        "/temp 1e-9",
        "/seed x",
        "/new now",
    ],
)
def test_wrong_commands_say_what_is_right(text):
    with pytest.raises(CommandError, match="/"):
        parse(text)


tokens = st.builds(
    Token,
    st.just(1),
    st.text(max_size=4),
    st.sampled_from(Origin),
    st.sampled_from(["model", "ngram"]),
)


@given(st.lists(tokens, max_size=12), st.integers(0, 40))
def test_runs_hold_the_text_and_give_any_end_of_it(given_tokens, length):
    from tui.render.text import plain

    runs = Runs()
    for token in given_tokens:
        runs.add(token)
    whole = plain("".join(token.text for token in given_tokens))
    assert "".join(run.text for run in runs.since(0)) == whole
    assert "".join(run.text for run in runs.since(length)) == whole[length:]
    kinds = [run.kind for run in runs.since(0)]
    assert all(a is not b for a, b in itertools.pairwise(kinds))


def test_styled_runs_are_no_markup():
    content = styled([Run("[bold]x[/]", Kind.MODEL), Run("y", Kind.BONUS)])
    assert content.plain == "[bold]x[/]y"
    assert [span.style for span in content.spans] == [Kind.MODEL.style, Kind.BONUS.style]


def test_every_drafter_that_is_not_the_model_counts_as_n_gram():
    assert kind_of(Token(1, "", Origin.ACCEPTED, "model")) is Kind.MODEL
    assert kind_of(Token(1, "", Origin.ACCEPTED, "ngram")) is Kind.NGRAM
    assert kind_of(Token(1, "", Origin.CORRECTED, None)) is Kind.CORRECTED


TOLD = [kind for kind in Kind if kind is not Kind.UNKNOWN]
"""No reply mixes the others with tokens that a server does not tell of."""


@pytest.mark.parametrize(("width", "form"), [(120, 0), (56, 1), (28, 2)])
def test_the_legend_fits_and_names_every_kind(width, form):
    assert max(line.cell_length for line in legend(width).split()) <= width
    for kind in TOLD:
        assert kind.labels[form] in legend(width).plain


def test_kinds_differ_without_colour():
    attributes = [frozenset(kind.style.split()[:-1]) for kind in TOLD]
    assert len(set(attributes)) == len(TOLD)


@pytest.mark.parametrize(
    ("terminal", "behind", "expected"),
    [
        ("xterm-256color", "", DARK.name),
        ("linux", "", "ansi-dark"),
        ("xterm", "15;0", "ansi-dark"),
        ("xterm", "0;15", "ansi-light"),
    ],
)
def test_few_colours_are_those_of_the_terminal(monkeypatch, terminal, behind, expected):
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.setenv("COLORFGBG", behind)
    monkeypatch.delenv("COLORTERM", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert wanted({}) == expected
    assert wanted({"theme": "nord"}) == "nord"


def test_without_colour_ours_would_be_shades_of_grey(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLORFGBG", "")
    assert wanted({}) == "ansi-dark"
    monkeypatch.setenv("NO_COLOR", "")  # as if it were not there
    assert wanted({}) == DARK.name


@pytest.mark.parametrize("own", [theme.ANSI_DARK, theme.ANSI_LIGHT], ids=lambda own: own.name)
def test_a_scrollbar_in_terminal_colours_is_no_brighter_than_the_text(own):
    assert own.variables["scrollbar"] in {"ansi_bright_black", "ansi_white"}
    for part in ("background", "background-hover", "background-active"):
        assert own.variables[f"scrollbar-{part}"] == own.background


def test_the_light_terminal_theme_is_light_whatever_the_terminal_is():
    light = theme.ANSI_LIGHT
    assert (light.foreground, light.background) == ("ansi_black", "ansi_bright_white")


@pytest.mark.parametrize("name", ["ansi-dark", "ansi-light"])
def test_origins_have_colours_of_the_terminal_there(name):
    colours = borrowed(BUILTIN_THEMES[name])
    assert set(colours) == set(OWN_VARIABLES)
    assert all(colour.startswith("ansi_") for colour in colours.values())
    origins = [colour for key, colour in colours.items() if key.startswith("origin-")]
    assert len(set(origins)) == len(origins)


def test_both_themes_have_the_same_variables():
    assert set(DARK.variables) == set(LIGHT.variables)


def test_every_key_has_an_id_of_its_own_and_is_in_the_tables():
    screens = ("compare", "race", "models", "settings", "listing", "chats", "presets", "rows")
    bindings = [*keymap.CHAT, *keymap.APP, *keymap.COMPOSER, *keymap.FIND]
    bindings += [key for name in (*screens, "themes") for key in keymap.of_screen(name)]
    ids = [binding.id for binding in bindings]
    assert None not in ids
    assert len(set(ids)) == len(ids)
    assert set(ids) == set(keymap.BY_ID)
    assert all(does for _, _, does in keymap.rows({}))


def test_the_page_of_keys_and_commands_is_true():
    assert keys_page.PAGE.read_text(encoding="utf-8") == keys_page.page()


def test_keys_can_be_bound_in_the_configuration():
    assert keymap.overrides({}) == {}
    quoted = {"keys": {"chat.compare": "f10"}}
    dotted = {"keys": {"chat": {"compare": "f10"}}}
    assert keymap.overrides(quoted) == keymap.overrides(dotted) == {"chat.compare": "f10"}
    for wrong in ({"keys": 1}, {"keys": {"chat.x": "f4"}}, {"keys": {"chat.compare": "[F4"}}):
        with pytest.raises(UsageError, match=r"config\.toml"):
            keymap.overrides(wrong)


def test_a_key_that_would_do_two_things_is_refused():
    for twice in (
        {"chat.compare": "f2"},
        {"composer.send": "f10", "chat.edit": "ctrl+b,f10"},
        {"models.drafts": "ctrl+q"},
        {"settings.save": "enter"},
    ):
        with pytest.raises(UsageError, match="is both"):
            keymap.overrides({"keys": twice})
    swapped = {"chat.compare": "f2", "chat.details": "f3"}
    assert keymap.overrides({"keys": swapped}) == swapped
    assert keymap.overrides({"keys": {"models.up": "f3"}})  # of another screen than F3's


def test_commands_and_files_are_completed(tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").touch()
    (tmp_path / "data.txt").touch()
    (tmp_path / ".hidden").touch()
    monkeypatch.chdir(tmp_path)
    assert [c.text for c in completions("/co")] == [
        "/continue",
        "/compare",
        "/colours",
        "/copy",
        "/context",
        "/compact",
    ]
    assert len(completions("/")) == len(SPECS)
    assert not completions("see /co")
    assert [c.text for c in completions("read @d")] == ["@data.txt", f"@docs{os.sep}"]
    assert [c.text for c in completions("@docs/")] == ["@docs/a.md"]
    assert [c.text for c in completions("@")] == ["@data.txt", f"@docs{os.sep}"]
    assert not completions("mail me@d")
    for i in range(300):
        (tmp_path / f"n{i}").touch()
    assert [c.text for c in completions("@dat")] == ["@data.txt"]  # however many there are
    assert not completions("@nowhere/x")


def test_a_named_file_goes_along_and_other_words_stay_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.md").write_text("one\n```\ntwo\n```\n", encoding="utf-8")
    assert attach("Look @a.md and @nobody") == (
        "Look @a.md and @nobody\n\na.md:\n````\none\n```\ntwo\n```\n````"
    )
    assert attach("a@a.md") == "a@a.md"
    (tmp_path / "b.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(AttachError, match="not text"):
        attach("@b.bin")
    (tmp_path / "sub").mkdir()
    with pytest.raises(AttachError, match="no files with text"):
        attach(f"see @sub{os.sep}")
    assert attach("see @sub") == "see @sub"
    (tmp_path / "sub" / "c.txt").write_text("three", encoding="utf-8")
    (tmp_path / "sub" / "d.bin").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "sub" / ".hidden").write_text("four", encoding="utf-8")
    (tmp_path / "sub" / "link").symlink_to(tmp_path / "a.md")
    assert attach("see @sub/") == "see @sub/\n\nsub/c.txt:\n```\nthree\n```"
    (tmp_path / "big").write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(AttachError, match="1 MB"):
        attach("@big")


def test_pictures_go_in_front_of_the_message(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cat.png").write_bytes(png())
    (tmp_path / "two words.jpg").write_bytes(png(format="JPEG"))
    (tmp_path / "a.md").write_text("one", encoding="utf-8")
    cat = attach("@cat.png").rstrip("\n")
    assert cat.startswith("![cat.png](picture:")
    assert attach("@cat.png What is this?") == f"{cat}\nWhat is this?"
    assert attach("What is this? @cat.png") == f"{cat}\nWhat is this?"
    assert attach("Is @cat.png, say, a cat?") == f"{cat}\nIs cat.png, say, a cat?"
    assert attach("See @cat.png.") == f"{cat}\nSee cat.png."
    both = attach('@cat.png @"two words.jpg" Compare, and read @a.md')
    assert both.startswith(f"{cat}\n![two words.jpg](picture:")
    assert both.endswith("Compare, and read @a.md\n\na.md:\n```\none\n```")
    assert attach(f"{cat}\nWhat is this?") == f"{cat}\nWhat is this?"  # an edited message


def test_pictures_that_are_dropped_are_named(tmp_path):
    cat, other = tmp_path / "cat.png", tmp_path / "my cat.png"
    cat.write_bytes(png())
    other.write_bytes(png())
    (tmp_path / "a.md").write_text("one", encoding="utf-8")
    assert dropped(str(cat)) == f"@{cat} "
    assert dropped(f"'{other}'") == f'@"{other}" '
    assert dropped(str(other).replace(" ", "\\ ") + " ") == f'@"{other}" '
    assert dropped(f"file://{str(other).replace(' ', '%20')}") == f'@"{other}" '
    assert dropped(f"{cat} '{other}'") == f'@{cat} @"{other}" '
    others = ("", "hello", "cat.png", str(tmp_path / "a.md"), f"{cat}\n{cat}", "'", str(tmp_path))
    assert [dropped(text) for text in others] == [None] * len(others)
    assert picture_named(str(cat)) == f"@{cat}"
    with pytest.raises(AttachError, match="is no picture"):
        picture_named(str(tmp_path / "a.md"))
    with pytest.raises(AttachError, match="cannot read"):
        picture_named(str(tmp_path / "nowhere.png"))
    os.mkfifo(tmp_path / "pipe.png")  # nobody writes to it
    with pytest.raises(AttachError, match="no regular file"):
        picture_named(str(tmp_path / "pipe.png"))


def test_a_thumbnail_has_two_pixels_in_a_cell():
    pixels = Pixels(2, 3, bytes(range(18)))
    first, last = thumbnail(pixels)
    assert first.text == last.text == "▀▀"
    assert [span.style for span in first.content.spans] == [
        "#000102 on #060708",
        "#030405 on #090a0b",
    ]
    assert [span.style for span in last.content.spans] == ["#0c0d0e", "#0f1011"]


@given(st.text(max_size=3000), st.text(max_size=50))
def test_folded_pastes_unfold_to_what_was_pasted(pasted, typed):
    pastes = Pastes()
    mark = pastes.fold(pasted)
    assert len(mark) <= max(1500, 0)
    assert mark.count("\n") < 12
    assert pastes.unfold(f"{typed} {mark}").endswith(pasted)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("An answer.", None),
        ("<think>hm", Thought("hm", 9, open=True)),
        ("<think>\nhm\n</think>\n\nYes.", Thought("hm", 21, open=False)),
        ("hm</think>Yes.", Thought("hm", 10, open=False)),
        ("Use <think> tags", None),
    ],
)
def test_thinking_is_told_from_the_answer(text, expected):
    assert thought(text) == expected


def test_an_editor_that_fails_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("VISUAL", "no-such-editor --wait")
    with pytest.raises(EditorError, match="set EDITOR"):
        long_text.command()
    with pytest.raises(EditorError, match="status 3"):
        long_text.edited("x", [sys.executable, "-c", "raise SystemExit(3)"])
    assert long_text.edited("x\n", [sys.executable, "-c", ADDS_A_LINE]) == "x\nmore"


PRESSES_KEYS = """
import os, signal, sys
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler  # ignored: SIG_IGN
for number in (signal.SIGINT, signal.SIGQUIT):
    os.kill(os.getppid(), number)
open(sys.argv[1], "w").write("written")
"""


def test_keys_that_the_editor_is_sent_are_not_for_the_chat():
    heard = []
    keys = (signal.SIGINT, signal.SIGQUIT)
    before = [signal.signal(key, lambda number, _: heard.append(number)) for key in keys]
    try:
        said = long_text.edited("x", [sys.executable, "-c", PRESSES_KEYS])
        assert (said, heard) == ("written", [])
        os.kill(os.getpid(), signal.SIGINT)
        assert heard == [signal.SIGINT]  # from then on as before
    finally:
        for key, handler in zip(keys, before, strict=True):
            signal.signal(key, handler)


def test_what_was_written_is_kept_where_the_wait_for_the_editor_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def cut(words, **_):
        Path(words[-1]).write_text("written")
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", cut)
    with pytest.raises(KeyboardInterrupt):
        long_text.edited("x", ["editor"])
    (path,) = tmp_path.rglob("message.md")
    assert path.read_text() == "written"


def test_an_editor_leaves_no_folder_behind_where_its_text_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    long_text.edited("x", [sys.executable, "-c", ADDS_A_LINE])
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("status", [0, 3])
def test_what_was_written_in_an_editor_that_failed_is_kept(tmp_path, monkeypatch, status):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = f"import sys; open(sys.argv[1], 'ab').write(b'\\xe4 more'); sys.exit({status})"
    with pytest.raises(EditorError, match="what was written is in") as failed:
        long_text.edited("x", [sys.executable, "-c", program])
    (path,) = tmp_path.rglob("message.md")
    assert str(path) in str(failed.value)
    assert path.read_bytes() == b"x\xe4 more"


ADDS_A_LINE = "import sys; open(sys.argv[1], 'a').write('more')"


def test_the_end_of_a_reply_that_no_token_showed_is_not_lost():
    conversation = Conversation()
    conversation.say("Hi")
    turn = conversation.answer()
    turn.add(Token(1, "He", Origin.ACCEPTED, "model"))
    turn.finish(Finished(Reply("Hello", (1,), (Origin.ACCEPTED,), "stop", some_stats(), 1)).reply)
    assert turn.text == "Hello"
    assert turn.runs.since(0) == [Run("Hello", Kind.MODEL)]


def test_an_unanswered_question_joins_the_next():
    conversation = Conversation("S")
    conversation.say("one")
    conversation.answer().end = "interrupt"
    conversation.say("two")
    assert conversation.messages() == (Message("system", "S"), Message("user", "one\n\ntwo"))


@pytest.mark.parametrize("calls", [(), (SavedCall("c1", "look", '{"at'),)])
def test_a_reply_that_was_cut_in_its_call_leaves_the_question_its_pictures(calls):
    conversation = Conversation()
    conversation.say(f"{pictures.keep(png(), 'cat.png')} What is this?")
    reply = conversation.answer()
    reply.text, reply.calls_at, reply.end = "<tool_call>", 0, "interrupt"
    reply.calls[:] = calls
    conversation.say("Well?")
    (asked,) = conversation.messages()
    assert asked.content == " What is this?\n\nWell?"
    assert [(one.at, one.name) for one in asked.pictures] == [(0, "cat.png")]


@terminals.needed
async def test_bytes_of_another_encoding_and_escapes_of_a_paste_are_no_keys(monkeypatch):
    from tui.terminal.driver import TerminalDriver

    ours, theirs = os.openpty()
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "__stdin__", terminal)
        handlers = {n: signal.getsignal(n) for n in (signal.SIGTSTP, signal.SIGCONT)}
        driver = TerminalDriver(App())
        for number, handler in handlers.items():
            signal.signal(number, handler)
        tty.setraw(theirs)
        seen = []
        whole = threading.Event()

        def process(event):
            seen.append(event.text if isinstance(event, Paste) else event.character)
            if seen[-1] == "b":
                whole.set()

        driver.process_message = process
        thread = threading.Thread(target=driver.run_input_thread)
        thread.start()
        os.write(ours, b"a\xff\xe9\x1b[200~\x1b[0m/new\r\x1b[201~b")
        await asyncio.to_thread(whole.wait, 8)
        driver.exit_event.set()
        thread.join()
    assert seen == ["a", "\ufffd", "\ufffd", "/new\r", "b"]


@terminals.needed
async def test_keys_typed_before_the_interface_had_the_terminal_are_the_same_keys(monkeypatch):
    """The terminal makes a line feed of Enter until then, which would be a line break. And it has
    its modes again in the end.
    """
    from textual.drivers.linux_driver import LinuxDriver

    from tui.terminal.driver import TerminalDriver

    ours, theirs = os.openpty()
    with os.fdopen(theirs) as file, os.fdopen(os.dup(theirs), "w") as out:
        monkeypatch.setattr(sys, "__stdin__", file)
        monkeypatch.setattr(sys, "__stderr__", out)
        numbers = (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH, signal.SIGTTIN, signal.SIGTTOU)
        handlers = {n: signal.getsignal(n) for n in numbers}
        before = termios.tcgetattr(theirs)
        take = LinuxDriver.start_application_mode

        def takes(driver):
            os.write(ours, b"\rthere")  # while Textual has not changed the terminal yet
            take(driver)

        monkeypatch.setattr(LinuxDriver, "start_application_mode", takes)
        os.write(ours, b"hi\rall")
        driver = TerminalDriver(App())
        seen = []
        whole = threading.Event()

        def process(event):
            seen.append(event.key)
            if event.key == "x":
                whole.set()

        driver.process_message = process
        try:
            driver.start_application_mode()
            os.write(ours, b"\rx")
            await asyncio.to_thread(whole.wait, 8)
            monkeypatch.setattr(LinuxDriver, "start_application_mode", take)
            driver.start_application_mode()  # as by a SIGCONT alone, and then by another
            stop = LinuxDriver.stop_application_mode

            def stops(driver):
                TerminalDriver.start_application_mode(driver)
                stop(driver)

            monkeypatch.setattr(LinuxDriver, "stop_application_mode", stops)
            driver.start_application_mode()
            monkeypatch.setattr(LinuxDriver, "stop_application_mode", stop)
        finally:
            driver.stop_application_mode()
            driver.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        after = termios.tcgetattr(theirs)
    os.close(ours)
    assert seen == [*"hi", "enter", *"all", "enter", *"there", "enter", "x"]
    assert after == before


@terminals.needed
def test_a_terminal_in_whose_background_it_is_stays_as_it_is(monkeypatch):
    """Changing it would stop the process where Textual does not expect it."""
    from tui.terminal import driver

    ours, theirs = os.openpty()
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp() + 1)
    monkeypatch.setattr(driver.tty, "setcbreak", lambda *_: pytest.fail("it was changed"))
    os.write(ours, b"hi\n")
    assert driver._typed_ahead(theirs) == ("", None)
    os.close(ours)
    os.close(theirs)


async def test_the_thread_that_reads_keys_ends_with_the_terminal(monkeypatch):
    """Nobody tells it to: a closed terminal may start it after the interface has ended."""
    from tui.terminal.driver import TerminalDriver

    theirs, ours = os.pipe()
    os.close(ours)
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "__stdin__", terminal)
        handlers = {n: signal.getsignal(n) for n in (signal.SIGTSTP, signal.SIGCONT)}
        app = App()
        later = []
        monkeypatch.setattr(app, "call_later", later.append)
        driver = TerminalDriver(app)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        thread = threading.Thread(target=driver.run_input_thread, daemon=True)
        thread.start()
        await asyncio.to_thread(thread.join, 30)
        assert not thread.is_alive()
        # Without SIGHUP, which the controlling terminal alone sends, nothing else ends the chat.
        (end,) = later
        end()
        assert app.return_code == 128 + signal.SIGHUP


def test_what_nobody_expected_is_one_error_and_no_page_of_code(monkeypatch, capfd):
    def on_mount(self):
        raise ValueError("secret")

    monkeypatch.setattr(ChatApp, "on_mount", on_mount)
    monkeypatch.setattr(ChatApp, "run", lambda self: App.run(self, headless=True))
    with pytest.raises(ValueError, match="secret"):
        run(Options(model="demo"), Sampling())
    assert "secret" not in "".join(capfd.readouterr())


@terminals.needed
def test_a_terminal_that_is_gone_does_not_hold_up_the_end():
    from textual.drivers._writer_thread import MAX_QUEUED_WRITES, WriterThread

    from tui.terminal.driver import Lasting

    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal:
        thread = WriterThread(Lasting(terminal))
        thread.start()
        os.close(ours)
        for _ in range(2 * MAX_QUEUED_WRITES):
            thread.write("drawn\n")  # a thread that had ended would be waited for from here on
        thread.stop()
        with contextlib.suppress(OSError):
            terminal.close()


async def test_a_click_on_a_key_in_the_last_row_has_its_effect(chat):
    async with chat(size=(100, 40)) as c:
        keys = c.app.screen.query_one("KeyBar")
        at = keys.content.plain.index("Details")
        await c.pilot.click("KeyBar", offset=(at + 1, 0))
        await c.until(lambda: c.app.screen.query_one("Details").display)


async def test_keys_are_listed_only_while_they_do_something(chat):
    async with chat(Script("word " * 40, hold_at=2)) as c:
        keys = c.app.screen.query_one("KeyBar")
        assert "Stop" not in keys.content.plain
        await c.type("Hello")
        await c.until(lambda: "Stop" in keys.content.plain)
        c.engine.go.set()
        await c.until(lambda: "Stop" not in keys.content.plain)
