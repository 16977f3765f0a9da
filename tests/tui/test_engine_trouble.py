"""Engines that end, workers that are lost, replies that fail: the chat goes on."""

import pytest
from fake_engine import LONG, FakeEngine, Script

from localspec.core.errors import (
    ContextError,
    DeviceLostError,
    DeviceMemoryError,
    ModelFileError,
    OutOfMemoryError,
    UsageError,
    WorkerError,
    WorkerLostError,
)
from localspec.core.events import Message
from localspec.core.files import paths
from localspec.core.options import Options
from tui.session import session_engine
from tui.session.conversation import ChatTurn, Conversation
from tui.session.reply_record import details, restore
from tui.session.session_engine import Phase


async def test_the_engine_dies_and_starts_again_with_the_conversation_kept(chat):
    async with chat(Script(LONG, hold_at=3), Script("Back.")) as c:
        await c.ask_and_hold("Hello")
        c.engine.die()
        await c.until(lambda: "engine stopped" in c.stats)
        await c.sees("signal 9")
        await c.sees("The conversation is saved")
        await c.sees("cut short")
        await c.type("Still there?")
        await c.sees("sent when the engine runs again")
        await c.pilot.press("ctrl+r")
        await c.until(lambda: len(c.replies) == 2 and c.replies[-1].end)
        assert c.engine.opened == 2
        assert [message.content for message in c.engine.asked[1]] == [
            "Hello",
            "One two three four five six seven eight",
            "Still there?",
        ]
        await c.sees("Back.")


@pytest.mark.parametrize(
    ("error", "smaller"), [(DeviceMemoryError("out of memory"), 1), (DeviceLostError("lost"), 0)]
)
async def test_a_failed_gpu_is_named_and_the_engine_starts_again_by_itself(chat, error, smaller):
    first, second = FakeEngine([Script(LONG, hold_at=3)]), FakeEngine([Script("Back.")])
    async with chat(engine=first) as c:
        opened = []
        c.session.engine.options = Options("story-target")
        c.session.engine.reopen = lambda options: opened.append(options) or second
        await c.ask_and_hold("Hello")
        first.die(error)
        await c.sees(str(error))
        await c.sees("The conversation is saved")
        await c.ready()
        assert [options.smaller for options in opened] == [1] * smaller
        c.engine = second if smaller else first
        c.engine.scripts = [Script("Back.")]
        await c.pilot.press("f9")
        await c.sees("Back.")
        assert "One two three" in c.screen_text, "what had arrived is lost"


async def test_a_worker_that_is_lost_is_waited_for(chat, monkeypatch):
    monkeypatch.setattr(session_engine, "_BACK_OFF_S", (0, 0, 0, 0))
    async with chat(Script(LONG, hold_at=3), Script("Back.")) as c:
        c.session.engine.options = Options("story-target", rpc="there:50052")
        c.session.engine.reopen = lambda _: pytest.fail("the model was loaded elsewhere")
        await c.ask_and_hold("Hello")
        c.engine.open_errors = [WorkerError("nothing listens"), WorkerLostError("lost once more")]
        c.engine.die(WorkerLostError("a worker has ended"))
        for text in ("a worker has ended", "nothing listens. Trying", "lost once more. Trying"):
            await c.sees(text)
        await c.ready()
        await c.pilot.press("f9")
        await c.sees("Back.")
        assert "One two three" in c.screen_text, "what had arrived is lost"


async def test_where_a_worker_stays_away_the_model_is_loaded_here(chat, monkeypatch):
    monkeypatch.setattr(session_engine, "_BACK_OFF_S", (0, 0))
    first, second = FakeEngine([Script(LONG, hold_at=3)]), FakeEngine([Script("Here.")])
    async with chat(engine=first) as c:
        opened = []
        c.session.engine.options = Options("story-target", rpc="there:50052")
        c.session.engine.reopen = lambda options: opened.append(options.rpc) or second
        await c.ask_and_hold("Hello")
        first.open_error = WorkerError("nothing listens")
        first.die(WorkerLostError("a worker has ended"))
        await c.sees("The workers are not back")
        await c.ready()
        assert opened == [None]
        c.engine = second
        await c.pilot.press("f9")
        await c.sees("Here.")


async def test_where_it_does_not_fit_here_the_workers_are_tried_again(chat, monkeypatch):
    monkeypatch.setattr(session_engine, "_BACK_OFF_S", (0, 0))
    first, here = FakeEngine([Script(LONG, hold_at=3)]), FakeEngine()
    here.open_error = OutOfMemoryError("16 GB are needed and 8 GB are free")
    third = FakeEngine([Script("Back.")])
    async with chat(engine=first) as c:
        engines = [here, third]
        c.session.engine.options = Options("story-target", rpc="there:50052")
        c.session.engine.reopen = lambda _: engines.pop(0)
        await c.ask_and_hold("Hello")
        first.open_error = WorkerError("nothing listens")
        first.die(WorkerLostError("a worker has ended"))
        await c.sees("16 GB are needed")
        await c.until(lambda: c.session.engine.phase is Phase.DEAD)
        assert c.session.engine.options.rpc == "there:50052"
        c.engine = third
        await c.pilot.press("ctrl+r")
        await c.ready()
        await c.pilot.press("f9")
        await c.sees("Back.")


async def test_the_engine_dies_while_idle_and_does_not_come_up_again(chat):
    async with chat() as c:
        c.engine.die()
        await c.sees("signal 9")
        c.engine.open_error = ModelFileError("the file is damaged")
        await c.pilot.press("ctrl+r")
        await c.sees("the file is damaged")
        assert c.app.is_running
        assert c.session.engine.phase is Phase.DEAD


async def test_a_failed_reply_is_one_line_and_the_next_one_works(chat):
    error = UsageError("the context holds 4")
    async with chat(Script(error=error), Script("Fine.")) as c:
        await c.ask("Hello")
        await c.sees("context holds 4")
        await c.ask("Again")
        await c.sees("Fine.")
        assert c.engine.asked[1] == (Message("user", "Again"),)  # else it would be too long as well
        await c.sees("not answered")


async def test_why_a_reply_cannot_go_on_now_is_said(chat):
    async with chat(Script(LONG, hold_at=3)) as c:
        await c.ask_and_hold("Hello")
        await c.pilot.press("f9")
        await c.until(lambda: "until the model is loaded and not replying" in c.stats)
        c.engine.go.set()
        await c.ready()
        c.engine.die()
        await c.pilot.press("f9")
        await c.until(lambda: "until the model is loaded and not replying" in c.stats)


async def test_a_question_that_failed_can_be_asked_once_more(chat):
    async with chat(Script(error=UsageError("not now")), Script("Fine.")) as c:
        await c.ask("Hello")
        await c.pilot.press("f5")
        await c.sees("Fine.")
        assert c.engine.asked[1] == (Message("user", "Hello"),)


async def test_what_cannot_be_opened_ends_the_interface_with_its_exit_code(chat):
    engine = FakeEngine(open_error=ModelFileError("not a GGUF"))
    async with chat(engine=engine, ready=False) as c:
        await c.until(lambda: not c.app.is_running or c.app.return_code is not None)
        assert c.app.return_code == 7
        assert str(c.app.failure) == "not a GGUF"


async def test_a_message_that_no_context_holds_does_not_stay_in_the_chat(chat):
    long = ContextError("the message is too long: 547207 tokens; shorten it: at most 768")
    async with chat(Script("Hi."), Script(error=long), Script("Still here.")) as c:
        await c.ask("Hello")
        await c.type("a very long text")
        await c.sees("the message is too long")
        await c.sees("not part of the chat any more; Up brings it back")
        assert [turn.text for turn in c.session.chat.conversation.turns] == ["Hello", "Hi."]
        await c.ask("And now?")
        await c.sees("Still here.")
        assert [message.content for message in c.engine.asked[-1]] == ["Hello", "Hi.", "And now?"]
        await c.pilot.press("up", "up")
        await c.until(lambda: c.composer.text == "a very long text")


async def test_a_chat_whose_first_question_was_taken_out_is_not_a_new_one(chat, tmp_path):
    long = ContextError("the message is too long: 547207 tokens; shorten it: at most 768")
    async with chat(Script(error=long)) as c:
        await c.type("a very long text")
        await c.sees("not part of the chat any more")
        assert not c.session.chat.conversation.turns
        await c.type(f"/export {tmp_path / 'it.json'}")
        await c.sees("written to")
        await c.pilot.press("alt+up")
        await c.sees("branch 1 of 1")
        assert c.session.chat.conversation.turns[0].text == "a very long text"
        await c.pilot.press("ctrl+n")
        assert len(c.session.chats.all) == 2


async def test_a_reply_that_cannot_go_on_is_what_it_was(chat):
    full = ContextError("the reply cannot go on: 9 tokens, and the context holds 9; raise --ctx")
    async with chat(Script(LONG, hold_at=2), Script(error=full)) as c:
        await c.ask_and_hold("Hello")
        await c.pilot.press("escape")
        await c.ready()
        made = c.replies[-1].made
        await c.pilot.press("f9")
        await c.sees("take more with /set ctx N")
        await c.sees("stopped by you")
        assert c.replies[-1].end == "interrupt"
        assert c.replies[-1].made is made is not None


async def test_a_token_that_the_models_are_not_asked_about_is_not_waited_for(chat):
    async def refused(request, tokens, rival=None):
        raise UsageError("this server does not tell the candidates of a token")

    async with chat(Script(LONG)) as c:
        c.engine.examine = refused
        await c.ask("Hello")
        await c.pilot.press("alt+left")
        await c.until(lambda: "does not tell the candidates" in c.stats)
        await c.sees("p and q are not known")
        assert "asking the models" not in c.screen_text


async def test_what_is_known_of_a_reply_that_went_on_is_of_its_last_part(chat):
    more = Script(" and the rest")
    async with chat(Script(LONG, hold_at=2), more, Script(" and the rest")) as c:
        await c.ask_and_hold("Hello")
        await c.pilot.press("escape")
        await c.ready()
        begun = len(c.replies[-1].tokens)
        await c.pilot.press("f9")
        await c.sees(f"{begun + 3} tokens")
        await c.ready()
        await c.pilot.press("alt+left")
        await c.sees(f"token {begun + 3}/{begun + 3}  ' rest'")
        await c.until(lambda: [len(tokens) for tokens in c.engine.examined] == [3])
        for _ in range(3):
            await c.pilot.press("alt+left")
        await c.sees("p and q are no longer available")
        await c.pilot.press("f3")
        await c.sees("all 3 tokens since it was continued are the same")
        assert c.engine.asked[-1] == c.engine.asked[-2]
        drafted, plainly = c.app.screen.query("CompareScreen TextFlow")
        assert drafted.text == plainly.text == " and the rest"
        turn = c.replies[-1]
        question = c.session.chat.conversation.turns[0]
        again = ChatTurn("assistant", turn.text, end=turn.end, id=turn.id, parent=question.id)
        restore(again, details(turn))
        resumed = Conversation()
        resumed.load([question, again], again.id)
        assert resumed.recipe_of(again) == c.session.chat.conversation.recipe_of(turn)


async def test_a_stopped_reply_goes_on_where_it_stopped(chat):
    async with chat(Script(LONG, hold_at=2), Script(" and the rest")) as c:
        await c.ask_and_hold("Hello")
        await c.pilot.press("escape")
        await c.ready()
        stopped = c.replies[-1].text
        assert c.replies[-1].end == "interrupt"
        await c.type("/continue")
        await c.until(lambda: c.replies[-1].text == stopped + " and the rest")
        await c.ready()
        assert len(c.replies) == 1
        assert c.engine.asked[-1][-1].role == "assistant"
        assert c.engine.asked[-1][-1].content == stopped
        await c.type("/continue")
        await c.until(lambda: "is complete" in c.stats)


async def test_a_command_that_fails_unexpectedly_is_told_and_the_chat_goes_on(chat, monkeypatch):
    async with chat(Script("Fine.")) as c:
        monkeypatch.setitem(c.app.screen.actions.runner._actions, "temp", lambda _: 1 / 0)
        c.composer.insert("/temp 0")
        c.composer.action_send()
        c.composer.insert("Hello")
        c.composer.action_send()
        await c.sees("this is a bug in localspec: ZeroDivisionError")
        await c.sees("Fine.")
        assert "ZeroDivisionError" in (paths.state_dir() / "defect.log").read_text("utf-8")


async def test_a_schema_below_a_home_that_there_is_not_is_missing(chat):
    async with chat() as c:
        await c.type("/schema ~nosuchuser/x.json")
        await c.sees("there is no file ~nosuchuser/x.json")
