"""The model picker, over a catalogue of its own and without a connection."""

import asyncio
import dataclasses
import re
import subprocess
import threading

import gguf_tools
import pytest
from fake_engine import INFO, LONG, FakeEngine, Script
from hub_server import own_catalogue

from localspec.core.errors import OutOfMemoryError, UsageError
from localspec.core.options import Options
from localspec.core.processes import children
from localspec.loading.offers import Offer, offers, with_back
from localspec.models.memory import ask_machine
from localspec.models.memory.machine import Gpu, Memory
from localspec.models.memory.speed import MachineSpeed
from tui.input import model_list
from tui.input.model_list import Standing, matching, typed
from tui.screens import models as models_module

GB = 10**9
MINE = """
[mine]
about = "a pair of files"
target = "{target}"
draft = "{draft}"
licence = "MIT"

[away]
about = "a pair of the Hub"
target = {{ repo = "org/Away-GGUF", file = "away-Q4_K_M.gguf", approx_bytes = 4900000000 }}

[huge]
about = "larger than any machine here"
target = {{ repo = "org/Huge-GGUF", file = "huge-Q4_K_M.gguf", approx_bytes = 900000000000 }}
"""


@pytest.fixture
def shelf(files, monkeypatch):
    """A catalogue; what a process of its own would say is said at once."""
    own_catalogue(MINE.format(target=files.target, draft=files.draft))
    told = {}

    def ask(module, *words):
        name = words[-1]
        if isinstance(said := told.get(name), Exception):
            raise said
        return said or show(name)

    monkeypatch.setattr(ask_machine, "memory", lambda: Memory((), 64 * GB, 64 * GB))
    monkeypatch.setattr(models_module.children, "ask", ask)
    return told


def show(name):
    facts = {"description": f"{name} by header", "parameters": 2e6, "context": 2048}
    return {"target": facts | {"licence": "apache-2.0"}, "draft": None}


async def test_a_draft_is_described_by_its_own_header_and_whether_it_matches(chat, shelf):
    async with chat() as c:
        c.session.engine.options = Options()
        c.session.engine.info = dataclasses.replace(INFO, target_bytes=GB)
        shelf["mine"] = show("demo") | {
            "draft": {"description": "small by header", "parameters": 1e6, "context": 512}
            | {"kind": "model", "mismatch": "other words", "same_vocabulary": False}
        }
        await c.type("/models mine")
        await c.sees("a pair of files")
        await c.pilot.press("tab")
        await c.sees("small by header")
        await c.sees("no: other words")


def answered_with(c, second):
    """The options that the session opens from now on."""
    opened = []
    c.session.engine.options = Options()
    c.session.engine.reopen = lambda options: opened.append(options) or second
    return opened


async def test_a_model_is_searched_chosen_and_the_conversation_stays(chat, shelf):
    second = FakeEngine([Script("from the second")])
    async with chat(Script("One.")) as c:
        opened = answered_with(c, second)
        await c.ask("Hello")
        await c.pilot.press("f4")
        await c.sees("larger than any machine here")
        await c.sees("● demo")
        await c.pilot.press(*"pair fil")
        await c.until(lambda: "huge" not in c.screen_text and "mine" in c.screen_text)
        await c.sees("CPU")
        await c.sees("mine by header")
        await c.pilot.press("enter")
        await c.until(lambda: second.opened == 1)
        await c.ready()
        assert (opened[0].model, opened[0].draft) == ("mine", None)
        await c.sees("One.")
        await c.type("And?")
        await c.until(lambda: c.replies[-1].text == "from the second")
        assert len(second.asked[-1]) == 3


async def test_the_present_model_is_not_given_up_for_a_head(chat, shelf):
    shelf["mine"] = show("mine") | {"kind": "eagle3", "name": "mine"}
    async with chat(Script("One."), size=(120, 30)) as c:
        opened = answered_with(c, FakeEngine())
        await c.type("/model mine")
        await c.sees("mine is a head (eagle3) and cannot run alone; /draft mine drafts with it")
        await c.pilot.press("f4")
        await c.sees("● demo")
        await c.pilot.press(*"pair", "enter")
        await c.sees("mine is a head (eagle3)")
        await c.pilot.press("escape")
        await c.ask("Hello")
        assert not opened


def test_a_long_path_is_listed_as_the_name_of_its_file():
    offer = Offer(f"/models/{'x' * 30}/small-Q4_0.gguf", "small-Q4_0.gguf", GB)
    line = model_list.row(
        offer, Standing(), model_list.widest([offer], 80), 80, current=False
    ).plain
    assert line.startswith("  small-Q4_0.gguf ")
    near = dataclasses.replace(offer, name="/m/small-Q4_0.gguf")
    line = model_list.row(near, Standing(), model_list.widest([near], 80), 80, current=False).plain
    assert line.startswith("  /m/small-Q4_0.gguf ")


async def test_another_draft_or_none_is_chosen_for_the_present_target(chat, shelf):
    second = FakeEngine()
    async with chat() as c:
        opened = answered_with(c, second)
        await c.pilot.press("f4")
        await c.sees("● demo")
        await c.pilot.press("tab")
        await c.sees("Drafts for story-target-q8.gguf")
        await c.sees("● auto")
        await c.pilot.press(*"none", "enter")
        await c.until(lambda: second.opened == 1)
        assert (opened[0].model, opened[0].draft) == ("demo", "none")


@pytest.mark.parametrize(("typed_draft", "meant"), [("none", "none"), ("auto", None), ("x", "x")])
async def test_a_draft_can_be_named_in_a_command(chat, known, typed_draft, meant):
    second = FakeEngine()
    async with chat() as c:
        opened = answered_with(c, second)
        await c.type(f"/draft {typed_draft}")
        await c.until(lambda: second.opened == 1)
        assert opened[0].draft == meant


async def test_what_is_not_here_is_offered_to_be_pulled_after_a_second_enter(chat, shelf):
    async with chat() as c:
        picked = []
        await c.pilot.press("f4")
        c.app.screen.dismiss, leave = picked.append, c.app.screen.dismiss
        await c.pilot.press(*"away")
        await c.until(lambda: "mine" not in c.screen_text)
        await c.sees("not here")
        await c.pilot.press("enter")
        await c.sees("press Enter again to download away")
        assert not picked
        await c.pilot.press("enter")
        await c.until(lambda: picked == [model_list.Pull("away")])
        leave(None)


async def test_what_is_too_big_says_so_before_it_is_pulled(chat, shelf):
    async with chat() as c:
        await c.type("/models huge")
        await c.sees("too big")
        await c.pilot.press("enter")
        await c.sees("although it is too big for this machine")
        await c.pilot.press("escape")
        await c.until(lambda: "too big" not in c.screen_text)


async def test_a_file_that_is_no_model_is_refused_and_the_present_model_stays(
    chat, shelf, tmp_path
):
    (tmp_path / "no.gguf").write_text("no model")
    shelf[str(tmp_path / "no.gguf")] = UsageError("no.gguf is not a GGUF file")
    async with chat() as c:
        opened = answered_with(c, FakeEngine())
        await c.type(f"/models {tmp_path}/no")
        await c.sees("no.gguf is not a GGUF file")
        await c.pilot.press("enter")
        await c.pilot.pause(0.1)
        assert isinstance(c.app.screen, models_module.ModelsScreen)
        assert not opened
        assert c.engine.closed == 0


async def test_a_damaged_catalogue_is_named_and_files_can_still_be_chosen(chat, shelf, files):
    own_catalogue("[broken\n")
    async with chat() as c:
        await c.type("/models")
        await c.until(lambda: "TOML:" in c.screen_text)
        c.app.screen.query_one("Input").value = str(files.folder) + "/"
        await c.sees("target.gguf")


async def test_a_search_that_finds_nothing_says_what_else_can_be_typed(chat, shelf):
    async with chat() as c:
        await c.type("/models nothing of the kind")
        await c.sees("no model matches")
        await c.pilot.press("enter", "escape")
        await c.ready()


@pytest.mark.parametrize("size", [(60, 15), (200, 50)])
async def test_the_picker_fits_any_terminal(chat, shelf, size):
    async with chat(size=size) as c:
        c.session.engine.options = Options()
        await c.pilot.press("f4")
        await c.sees("● demo")
        await c.sees("CPU")
        await c.pilot.press("pagedown", "up")
        assert all(len(line) <= size[0] for line in c.screen_text.splitlines())


async def test_a_model_that_cannot_be_loaded_leaves_the_one_before(chat, known):
    failing = FakeEngine(open_error=OutOfMemoryError("it needs 900 GB"))
    again = FakeEngine([Script("Back.")])
    async with chat(Script("One.")) as c:
        await c.ask("Hello")
        engines = [failing, again]
        opened = answered_with(c, None)
        c.session.engine.reopen = lambda options: opened.append(options) or engines.pop(0)
        await c.type("/model huge")
        await c.sees("it needs 900 GB")
        await c.sees("demo is being loaded again")
        await c.ready()
        assert [options.model for options in opened] == ["huge", "demo"]
        assert c.session.engine.options.model == "demo"
        await c.ask("Still there?")
        assert c.replies[-1].text == "Back."


@pytest.mark.slow
async def test_a_name_of_nothing_is_refused_before_the_present_model_is_given_up(chat, tmp_path):
    (tmp_path / "no.gguf").write_text("no model")
    async with chat(Script("One.")) as c:
        opened = answered_with(c, FakeEngine())
        await c.type("/model nothing")
        await c.sees("no model called 'nothing'")
        await c.type(f"/model {tmp_path}/no.gguf")
        await c.sees("no.gguf is not a GGUF file")
        await c.type("/draft nothing")
        await c.until(lambda: c.screen_text.count("no model called 'nothing'") == 2)
        await c.type("/model qwen3-8b")
        await c.sees("/pull qwen3-8b fetches it")
        assert not opened
        assert c.engine.closed == 0
        await c.ask("Still there?")


# -- the parts ----------------------------------------------------------------------------------


def test_what_is_here_is_listed_first_with_files_of_folders(files):
    own_catalogue(MINE.format(target=files.target, draft=files.draft))
    found = offers([files.folder, files.folder]).found
    names = [offer.name for offer in found]
    assert names.index("mine") < names.index(str(files.target)) < names.index("away")
    assert len(names) == len(set(names))
    mine = found[names.index("mine")]
    assert mine.n_bytes == files.target.stat().st_size + files.draft.stat().st_size
    assert found[names.index("away")].pullable


def test_a_model_in_shards_is_one_offer_and_half_of_one_is_none(tmp_path):
    for name in ("a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "b-00001-of-00002.gguf"):
        (tmp_path / name).write_bytes(b"x" * 5)
    found = [o for o in offers([tmp_path]).found if str(tmp_path) in o.name]
    assert [(o.name, o.n_bytes) for o in found] == [(str(tmp_path / "a-00001-of-00002.gguf"), 10)]


def test_what_a_loaded_model_holds_of_a_gpu_counts_as_free_for_the_next():
    def loaded(n_bytes):
        return dataclasses.replace(INFO, backend="cuda", target_bytes=n_bytes)

    memory = Memory((Gpu("CUDA0", "card", 2 * GB, 24 * GB),), 8 * GB, 16 * GB)
    offer = Offer("x", "x", 12 * GB)
    assert offer.fit(memory) != "fits on GPU"
    assert offer.fit(with_back(memory, loaded(18 * GB))) == "fits on GPU"
    assert with_back(memory, loaded(90 * GB)).gpus[0].free == 24 * GB


def test_all_words_of_a_search_must_be_there():
    found = [Offer("qwen-8b", "q", 1, licence="apache-2.0"), Offer("llama-8b", "l", 1)]
    assert [o.name for o in matching(found, "8B Apache")] == ["qwen-8b"]


@pytest.mark.parametrize("query", ["user/repo", "user/repo:Q4_K_M", "hf.co/user/repo"])
def test_a_name_of_the_hub_can_be_pulled(query):
    (offer,) = typed(query)
    assert (offer.name, offer.installed, offer.pullable) == (query, False, True)


def test_a_path_that_is_typed_lists_its_folder(files):
    assert [o.name for o in typed(f"{files.folder}/tar")] == [str(files.target)]
    assert typed("/no/such/folder/x") == []
    assert typed("words") == []


def test_memory_is_asked_in_a_process_of_its_own_and_errors_are_one_line(tmp_path):
    model = gguf_tools.write_llama(tmp_path / "m.gguf", layers=1)
    facts = children.ask("localspec", "show", "--json", "--offline", str(model))
    assert facts["target"]["layers"] == 1
    (tmp_path / "no.gguf").write_text("no model")
    with pytest.raises(Exception, match=r"^no.gguf is not a GGUF file$"):
        children.ask("localspec", "show", "--json", "--offline", str(tmp_path / "no.gguf"))
    assert ask_machine.memory().host_total > 0


def test_the_interface_never_imports_numpy_for_it():
    """The list and the panel are opened in a fresh interpreter, as a person would."""
    code = (
        "import sys; import tui.screens.models, tui.screens.settings, tui.in_terminal;"
        "import tui.session.pull_process;"
        "from localspec.loading.offers import offers; offers();"
        "from localspec.models.memory import ask_machine; m = ask_machine.memory();"
        "[o.fit(m) for o in offers().found]; print('numpy' in sys.modules)"
    )
    line, environment = children.command("localspec")
    done = subprocess.run(
        [*line[:2], "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


CURVE = {1: 1e-10, 4: 1.5e-10, 8: 2.5e-10}


async def test_speeds_of_a_busy_machine_are_marked_until_a_key_measures_it_again(
    chat, shelf, monkeypatch
):
    curves = {"Q4_0": CURVE, "Q4_K": CURVE}
    quiet = asyncio.Event()

    async def measured(*, again):
        if again:
            await quiet.wait()
        return MachineSpeed(curves, {}, disturbed=not again)

    monkeypatch.setattr(models_module, "saved", lambda: None)
    monkeypatch.setattr(models_module, "machine_speed_async", measured)
    async with chat(size=(80, 24)) as c:
        await c.type("/models")
        await c.sees("+ at least, it was busy")
        rows = c.screen_text.splitlines()
        assert re.search(r"qwen3-14b .* \d(\.\d)?\+ ", c.screen_text)
        assert not any(" slow " in row for row in rows)
        assert "^r Measure" in rows[-1]
        await c.pilot.press("ctrl+r")
        await c.sees("measuring this machine …")
        quiet.set()
        await c.until(lambda: re.search(r"qwen3-14b .* slow +\d(\.\d)? ", c.screen_text))
        assert "at least" not in c.screen_text


async def test_expected_speeds_are_listed_and_the_best_pair_is_on_top(chat, shelf, monkeypatch):
    monkeypatch.setattr(models_module, "saved", lambda: None)

    async def measured(*, again):
        return MachineSpeed({"Q4_0": CURVE, "Q4_K": CURVE}, {})

    monkeypatch.setattr(models_module, "machine_speed_async", measured)
    shelf["qwen3-4b"] = shelf["demo"] = show("x")
    async with chat(size=(80, 24)) as c:
        await c.type("/models")
        await c.sees("★ best for this machine: ")
        rows = c.screen_text.splitlines()
        assert "TOK/S" in rows[4]
        assert "  ★ " in rows[5]  # the first of the list
        assert any("qwen3-14b" in row and " slow " in row and "1." in row for row in rows)
        assert "⏎ Use or pull" in rows[-1]
        c.app.screen.query_one("OptionList").highlighted = 0
        await c.sees("(an estimate)")


@pytest.mark.parametrize("refused", ["by the check", "by the session"])
async def test_a_question_is_not_answered_again_by_a_model_that_was_refused(
    chat, monkeypatch, refused
):
    async with chat(Script("One."), Script("Two.")) as c:
        await c.ask("Hello")
        opened = answered_with(c, FakeEngine([Script("Two.")]))
        if refused == "by the check":
            monkeypatch.setattr(children, "ask", lambda *_: {"installed": False})
        else:
            monkeypatch.setattr(children, "ask", lambda *_: {})
            load = c.session.load
            monkeypatch.setattr(c.session, "load", refuses)
        await c.type("/again wrongname")
        await c.sees("is not here" if refused == "by the check" else "refused")
        if refused == "by the session":
            monkeypatch.setattr(c.session, "load", load)
        await c.type("/set ctx 4096")
        await c.until(lambda: opened)
        await c.ready()
        assert len(c.replies) == 1
        assert c.session.chat.conversation.place == (1, 1)


def refuses(**_):
    raise UsageError("refused")


async def test_another_model_answers_the_question_of_the_chat_where_it_was_asked(chat, monkeypatch):
    checked = threading.Event()
    monkeypatch.setattr(children, "ask", lambda *_: checked.wait(60) and {})
    second = FakeEngine([Script("Two.")])
    async with chat(Script("One."), Script("Elsewhere.")) as c:
        await c.ask("Hello")
        asked_in = c.session.chat
        await c.pilot.press("ctrl+n")
        await c.ask("there")
        await c.pilot.press("ctrl+pageup")
        answered_with(c, second)
        await c.type("/again other")
        await c.pilot.press("ctrl+pagedown")
        checked.set()
        await c.until(lambda: second.asked)
        await c.ready()
        assert [t.text for t in asked_in.conversation.turns] == ["Hello", "Two."]
        assert [t.text for t in c.session.chat.conversation.turns] == ["there", "Elsewhere."]


async def test_a_reply_that_begins_while_a_model_is_checked_is_not_stopped_unasked(
    chat, monkeypatch
):
    checked = threading.Event()
    monkeypatch.setattr(children, "ask", lambda *_: checked.wait(60) and {})
    second = FakeEngine([Script("Two.")])
    async with chat(Script(LONG, hold_at=2)) as c:
        answered_with(c, second)
        await c.type("/model other")
        await c.ask_and_hold("Hello")
        checked.set()
        await c.until(lambda: "the same again stops it" in c.stats)
        assert c.session.replying
        assert not second.opened
        c.engine.go.set()
        await c.ready()
        assert c.replies[-1].end == "stop"
