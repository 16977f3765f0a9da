"""Settings and models are changed while chatting; the conversation stays."""

from __future__ import annotations

import asyncio

import pytest
from fake_engine import FakeEngine, Script
from test_chat import LONG
from textual.widgets import Input

from localspec import cli
from localspec.cli.chat import command as chat_command
from localspec.config import settings as config_settings
from localspec.core.errors import LocalspecError, UsageError
from localspec.core.files import paths
from localspec.core.options import Options
from localspec.core.sampling_params import Sampling
from tui.input import setting_fields
from tui.session.session_engine import Phase
from tui.session.settings import Settings


def test_settings_are_listed_with_their_values():
    rows = dict(
        setting_fields.rows(Settings(Sampling(top_k=7)), Options(drafter=("suffix", "model")))
    )
    assert rows["top_k"] == "7"
    assert rows["drafter"].startswith("suffix,model")
    assert rows["draft_max"] == "auto  (another one loads the model again)"


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("top-k 5", ("top_k", 5)),
        ("min_p=0.1", ("min_p", 0.1)),
        ("TEMPERATURE 0", ("temperature", 0)),
    ],
)
def test_sampling_is_changed_by_name(text, changed):
    field, expected = changed
    assert getattr(_change(text).sampling, field) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("colour 3", "top_k", "top_k many", "top_p 7", "threads few", "verifier guessing"),
        *("max_tokens 0", "seed x", "drafter psychic", "draft_max 99", "temperature nan"),
    ],
)
def test_what_cannot_be_meant_is_refused(text):
    with pytest.raises((setting_fields.SettingError, UsageError)):
        _change(text)


def _change(text):
    name, value = setting_fields.read(text)
    wanted = {name: setting_fields.BY_NAME[name].parse(value)}
    return setting_fields.change(wanted, Settings(Sampling()), Options())


def test_every_setting_has_the_name_of_a_flag():
    flags = {option.name for option in chat_command.params}
    assert {field.name for field in setting_fields.FIELDS} <= flags


def test_settings_as_they_are_change_nothing():
    settings, options = Settings(Sampling(), seed=3), Options(drafter=("suffix",), draft_max=4)
    held = setting_fields.values(settings, options)
    again = {
        name: setting_fields.BY_NAME[name].parse(setting_fields.text_of(v))
        for name, v in held.items()
    }
    change = setting_fields.change(again, settings, options)
    assert (change.sampling, change.seed, change.options) == (settings.sampling, 3, {})


async def test_another_model_goes_on_with_the_conversation(chat, known):
    second = FakeEngine([Script("from the second")])
    async with chat(Script(LONG)) as c:
        await c.ask("Hello")
        c.session.engine.options = Options()
        opened = []
        c.session.engine.reopen = lambda options: opened.append(options) or second
        await c.type("/model other.gguf small.gguf")
        await c.until(lambda: second.opened == 1)
        await c.ready()
        assert (opened[0].model, opened[0].draft) == ("other.gguf", "small.gguf")
        assert c.engine.closed == 1
        await c.type("And now?")
        await c.until(lambda: c.replies[-1].text == "from the second" and c.replies[-1].end)
        assert [m.role for m in second.asked[-1]] == ["user", "assistant", "user"]
        await c.type("/set verifier guessing")
        await c.until(lambda: "guessing" in c.stats)
        await c.type("/set top_k 3")
        await c.until(lambda: c.session.settings.sampling.top_k == 3)
        await c.type("/set")
        await c.sees("repeat_penalty")


async def test_the_panel_shows_checks_and_applies_from_the_next_reply(chat):
    async with chat(Script("One.")) as c:
        await c.pilot.press("ctrl+s")
        await c.sees("temperature")
        panel = c.app.screen
        assert panel.query_one("#temperature", Input).value == "0.8"
        assert panel.query_one("#seed", Input).value == "1"
        panel.query_one("#top_p", Input).value = "7"
        await c.sees("top_p must be between 0 and 1, not 7")
        await c.pilot.press("enter")
        assert c.app.screen is panel
        panel.query_one("#top_p", Input).value = "0.5"
        panel.query_one("#seed", Input).value = "auto"
        await c.pilot.press("down", "enter")
        await c.until(lambda: c.app.screen is not panel)
        assert c.session.settings.sampling.top_p == 0.5
        assert c.session.settings.seed is None
        await c.until(lambda: "from the next reply on" in c.stats)
        assert c.engine.closed == 0


async def test_what_the_model_is_loaded_with_loads_it_again(chat):
    second = FakeEngine()
    async with chat() as c:
        c.session.engine.options, opened = Options(), []
        c.session.engine.reopen = lambda options: opened.append(options) or second
        await c.type("/settings")
        await c.sees("draft max")
        panel = c.app.screen
        panel.query_one("#draft_max", Input).value = "5"
        panel.query_one("#drafter", Input).value = "suffix, model"
        panel.query_one("#verifier", Input).value = "rejection"
        await c.sees("load the model again")
        await c.pilot.press("enter")
        await c.until(lambda: second.opened == 1)
        assert opened == [
            Options(draft_max=5, drafter=("suffix", "model"), verifier="rejection"),
        ]


async def test_the_arrow_keys_go_from_field_to_field_where_not_all_have_room(chat):
    async with chat(size=(60, 15)) as c:
        await c.pilot.press("ctrl+s")
        await c.sees("top k")
        for name in ("top_k", "top_p", "min_p"):
            await c.pilot.press("down")
            await c.until(lambda name=name: c.app.focused.id == name)
        await c.pilot.press("up")
        await c.until(lambda: c.app.focused.id == "top_p")


@pytest.mark.parametrize("width", [80, 120])
async def test_no_help_is_cut_and_no_name_is_one_of_the_code(chat, width):
    async with chat(size=(width, 30)) as c:
        c.session.engine.options = Options()
        await c.pilot.press("ctrl+s")
        await c.sees("bit-identical replies in any batch")
        assert "…" not in c.screen_text
        assert "_" not in c.screen_text
        assert c.app.screen.query_one("#strict", Input).value == "no"


async def test_settings_are_saved_as_defaults_and_only_those_that_were_changed(chat):
    path = paths.config_dir() / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("# mine\ntop_k = 9\n")
    async with chat() as c:
        await c.pilot.press("ctrl+s")
        c.app.screen.query_one("#temperature", Input).value = "0.25"
        await c.pilot.press("ctrl+s")
        await c.until(lambda: c.session.settings.sampling.temperature == 0.25)
        await c.sees("and saved in")
    assert path.read_text() == "# mine\ntop_k = 9\ntemperature = 0.25\n"
    assert cli.call(["run", "-n", "1", "--temperature", "x", "hi"]) == 2  # the file is read


async def test_what_another_window_has_saved_stays_and_flags_are_not_saved(chat):
    path = paths.config_dir() / "config.toml"
    async with chat() as c, chat() as other:  # with a seed, as by a flag
        for window, name, value in ((c, "temperature", "0.3"), (other, "max_tokens", "500")):
            await window.pilot.press("ctrl+s")
            await window.sees("temperature")
            window.app.screen.query_one(f"#{name}", Input).value = value
            await window.pilot.press("ctrl+s")
            await window.sees("and saved in")
        assert path.read_text() == "temperature = 0.3\nmax_tokens = 500\n"
        # A default that is chosen again is saved too: by its absence.
        await c.pilot.press("ctrl+s")
        await c.sees("top k")
        c.app.screen.query_one("#temperature", Input).value = "0.8"
        await c.pilot.press("ctrl+s")
        await c.until(lambda: "temperature" not in path.read_text())
    assert path.read_text() == "max_tokens = 500\n"


async def test_what_was_tried_in_this_chat_is_saved_when_the_panel_is_asked_to(chat):
    path = paths.config_dir() / "config.toml"
    async with chat() as c:
        await c.type("/set top_k 7")
        await c.until(lambda: c.session.settings.sampling.top_k == 7)
        await c.pilot.press("ctrl+s")
        await c.sees("temperature")
        c.app.screen.query_one("#temperature", Input).value = "0.3"
        await c.pilot.press("enter")
        await c.until(lambda: c.session.settings.sampling.temperature == 0.3)
        assert not path.exists()
        await c.pilot.press("ctrl+s")
        await c.sees("top k")
        await c.pilot.press("ctrl+s")
        await c.sees("and saved in")
        assert sorted(path.read_text().split("\n")) == ["", "temperature = 0.3", "top_k = 7"]
        await c.pilot.press("ctrl+s")
        await c.sees("top k")
        await c.pilot.press("ctrl+s")
        await c.sees("nothing was changed")


async def save_in_panel(c, name, value):
    await c.pilot.press("ctrl+s")
    await c.sees("top k")
    c.app.screen.query_one(f"#{name}", Input).value = value
    await c.pilot.press("ctrl+s")
    await c.sees("saved in")


async def test_a_setting_that_was_refused_or_could_not_be_loaded_is_not_saved(chat):
    path, held = paths.config_dir() / "config.toml", FakeEngine()
    held.loaded.clear()
    async with chat() as c:
        c.session.engine.options = Options(context=2048)
        engines = [FakeEngine(open_error=LocalspecError("no memory")), FakeEngine(), held]
        c.session.engine.reopen = lambda _: engines.pop(0)
        await c.type("/set ctx 4096")
        await c.sees("is being loaded again")
        await c.ready()
        await c.type("/set threads 1")
        await c.until(lambda: c.session.engine.phase is Phase.LOADING)
        await c.type("/set ctx 8192")
        await c.sees("wait until the model is loaded")
        held.loaded.set()
        await c.ready()
        assert c.session.engine.options == Options(context=2048, threads=1)
        await save_in_panel(c, "temperature", "0.3")
    assert sorted(path.read_text().split("\n")) == ["", "temperature = 0.3", "threads = 1"]


async def test_the_value_of_a_preset_is_not_saved_as_the_users_own(chat):
    path = paths.config_dir() / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("[presets.calm]\ntemperature = 0.1\n")
    async with chat() as c:
        await c.type("/temp 0.5")
        await c.until(lambda: c.session.settings.sampling.temperature == 0.5)
        await c.type("/preset calm")
        await c.until(lambda: c.session.settings.sampling.temperature == 0.1)
        await save_in_panel(c, "top_k", "7")
    assert path.read_text() == "top_k = 7\n\n[presets.calm]\ntemperature = 0.1\n"


async def test_the_panel_leaves_what_a_command_has_changed_while_it_was_open(chat, monkeypatch):
    goes_on = asyncio.Event()

    async def slow(_):
        await goes_on.wait()

    async with chat() as c:
        monkeypatch.setitem(c.app.screen.actions.runner._actions, "folder", slow)
        await c.type("/folder x")
        await c.type("/temp 0.2")
        await c.pilot.press("ctrl+s")
        await c.sees("top k")
        goes_on.set()
        await c.until(lambda: c.session.settings.sampling.temperature == 0.2)
        c.app.screen.query_one("#top_k", Input).value = "7"
        await c.pilot.press("enter")
        await c.until(lambda: c.session.settings.sampling.top_k == 7)
        assert c.session.settings.sampling.temperature == 0.2


async def test_a_panel_in_which_nothing_was_changed_saves_nothing_and_says_so(chat):
    async with chat() as c:
        await c.pilot.press("ctrl+s")
        await c.sees("temperature")
        c.app.screen.query_one("#temperature", Input).value = "0.80"
        await c.pilot.press("ctrl+s")
        await c.sees("nothing was changed")
    assert not (paths.config_dir() / "config.toml").exists()


async def test_saved_settings_that_wait_for_a_reply_are_not_said_to_be_in_effect(chat):
    async with chat(Script(LONG, hold_at=2)) as c:
        c.session.engine.options, opened = Options(), []
        c.session.engine.reopen = lambda options: opened.append(options) or FakeEngine()
        await c.ask_and_hold("Hello")
        for saved in (1, 2):
            await c.pilot.press("ctrl+s")
            await c.sees("draft max")
            c.app.screen.query_one("#draft_max", Input).value = "5"
            await c.pilot.press("ctrl+s")
            if saved == 1:
                await c.until(lambda: "the same again stops it" in c.stats)
                await c.sees("saved in")
                assert "in effect" not in c.screen_text
                assert not opened
        await c.until(lambda: opened)
        assert opened[0].draft_max == 5


async def test_a_damaged_file_is_not_written_to_and_nothing_typed_is_lost(chat):
    path = paths.config_dir() / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("top_k = \n")
    async with chat() as c:
        await c.pilot.press("ctrl+s")
        panel = c.app.screen
        panel.query_one("#temperature", Input).value = "0.25"
        await c.pilot.press("ctrl+s")
        await c.sees("not saved")
        assert c.app.screen is panel
        await c.pilot.press("escape")
        assert c.session.settings.sampling.temperature == 0.8
    assert path.read_text() == "top_k = \n"


@pytest.mark.slow
@pytest.mark.parametrize("size", [(60, 15), (200, 50)])
async def test_the_panel_fits_any_terminal(chat, size):
    async with chat(size=size) as c:
        c.session.engine.options = Options()
        await c.pilot.press("ctrl+s")
        await c.sees("temperature")
        for _ in range(14):
            await c.pilot.press("down")
        await c.sees("threads")
        assert all(len(line) <= size[0] for line in c.screen_text.splitlines())


async def test_a_preset_is_used_listed_and_saved(chat):
    path = paths.config_dir() / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text('[presets.calm]\nsystem = "Be brief."\ntemperature = 0.1\n')
    async with chat(Script("One.")) as c:
        await c.type("/preset")
        await c.sees('calm  temperature 0.1, "Be brief."')
        await c.pilot.press(*"no such words")
        await c.sees("no preset has these words")
        await c.leave()
        await c.type("/preset calm")
        await c.until(lambda: "preset calm" in c.stats)
        assert c.session.settings.sampling.temperature == 0.1
        await c.ask("Hello")
        assert [m.content for m in c.engine.asked[-1]] == ["Be brief.", "Hello"]
        await c.type("/preset nothing")
        await c.until(lambda: "no preset called 'nothing'" in c.stats)
        await c.type("/set top_k 4")
        await c.type("/preset save mine")
        await c.until(lambda: "mine" in config_settings.settings().get("presets", {}))
    assert config_settings.settings()["presets"] == {
        "calm": {"system": "Be brief.", "temperature": 0.1},
        "mine": {"temperature": 0.1, "top_k": 4, "seed": 1, "system": "Be brief."},
    }


async def test_a_preset_is_chosen_in_one_screen_with_its_model_tools_and_first_line(chat):
    path = paths.config_dir() / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(
        '[presets.calm]\nsystem = "Be brief.\\nAlways."\n'
        '[presets.git]\ntemperature = 0.2\ntools = "git/log, wiki/*"\n'
    )
    async with chat(Script("One.")) as c:
        await c.type("/preset")
        await c.sees('calm                   "Be brief."')
        await c.sees("git   git/log, wiki/*  temperature 0.2")
        await c.pilot.press("down", "enter")
        await c.until(lambda: "preset git" in c.stats)
        assert c.session.settings.sampling.temperature == 0.2
        assert c.session.tools.only == ("git/log", "wiki/*")
        await c.type("/preset save mine")
        await c.until(lambda: "mine" in config_settings.settings().get("presets", {}))
    assert config_settings.settings()["presets"]["mine"]["tools"] == "git/log, wiki/*"


async def test_a_preset_may_bring_another_model_and_only_once(chat, known):
    path = paths.config_dir() / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text('[presets.big]\nmodel = "big"\ndraft_max = "auto"\nctx = 512\n')
    second = FakeEngine()
    async with chat() as c:
        c.session.engine.options, opened = Options(draft="small"), []
        c.session.engine.reopen = lambda options: opened.append(options) or second
        await c.type("/preset big")
        await c.until(lambda: second.opened == 1)
        await c.ready()
        assert opened == [Options(model="big", context=512)]
        await c.type("/preset big")
        await c.until(lambda: "preset big" in c.stats)
        assert len(opened) == 1


async def test_presets_are_completed(chat):
    path = paths.config_dir() / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text('[presets.calm]\nsystem = "Be brief."\n[presets.mad]\ntop_k = 0\n')
    async with chat() as c:
        c.composer.insert("/preset c")
        await c.sees("Be brief.")
        await c.pilot.press("tab")
        assert c.composer.text == "/preset calm "


async def test_a_preset_says_what_the_file_would_set_otherwise(chat):
    path = paths.config_dir() / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("temperature = 0.3\n")
    async with chat() as c:
        await c.type("/preset save mine")
        await c.until(lambda: "mine" in config_settings.settings().get("presets", {}))
        assert config_settings.settings()["presets"]["mine"] == {"temperature": 0.8, "seed": 1}


@pytest.mark.parametrize("in_file", ["", "temperature = 0.8\n"])
async def test_a_preset_holds_what_a_chat_without_it_would_not_have(chat, in_file):
    path = paths.config_dir() / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(in_file)
    async with chat(size=(200, 40)) as c:
        await c.type("/preset save mine")
        await c.until(lambda: c.stats.endswith("config.toml: seed"))
        assert config_settings.settings()["presets"]["mine"] == {"seed": 1}


async def test_a_preset_of_nothing_is_not_saved(chat):
    async with chat() as c:
        await c.type("/seed")
        await c.type("/preset save mine")
        await c.until(lambda: "nothing to save" in c.stats)
        assert not config_settings.settings()
