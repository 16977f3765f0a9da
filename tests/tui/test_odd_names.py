"""Texts that can be no name of a file, as a chat of a stranger or a paste may have them."""

import pytest
from fake_engine import Script

from tui.input.attachments import dropped
from tui.input.completion import completions
from tui.input.model_list import typed
from tui.session.commands import SPECS

ODD = {
    "a NUL": "a\0/b",
    "a NUL in a user's name": "~\0/b",
    "a lone surrogate": "\ud800/x",
    "a lone surrogate at the end": "x/\udfff",
    "a long name": "n" * 300,
    "a file with a long name": f"{'n' * 300}/x.md",
    "an unknown user": "~nobody-of-this-name/x",
    "a user with a long name": f"~{'n' * 300}/x",
    "no name": "//",
    "a very long path": "n/" * 5000,
}
ASKS = ("@", '@"', *(f"/{name} " for name in SPECS))
LEAVES = {"quit"}


@pytest.mark.parametrize("name", ODD)
def test_no_text_is_too_odd_to_be_completed(name):
    for before in ASKS:
        completions(before + ODD[name])
    typed(ODD[name])
    dropped(f"/{ODD[name]}")


@pytest.mark.parametrize("key", ["f8", "up"])
async def test_a_question_that_names_no_possible_file_can_be_changed(chat, key):
    async with chat(Script("Yes."), Script("Yes.")) as c:
        for odd in ODD.values():
            c.session.chat.conversation.say(f"see @{odd}")
            c.session.chat.conversation.answer().end = "stop"
        for _ in ODD:
            await c.pilot.press(key)
            await c.pilot.pause()
        await c.pilot.press("escape", "escape")
        assert c.app.is_running


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(4))
async def test_no_argument_of_a_command_is_too_odd_for_the_chat(chat, known, turn):
    """Each command gets four of them."""
    odd = [*ODD.values()]
    async with chat(Script("Yes."), Script("Yes.")) as c:
        await c.ask("Why?")
        for at, command in enumerate(sorted(SPECS.keys() - LEAVES)):
            c.composer.text = f"/{command} {odd[(at + 3 * turn) % len(odd)]}"
            await c.pilot.press("enter")
            await c.pilot.pause()
            while c.app.screen is not c.app.screen_stack[0]:
                await c.pilot.press("escape")
                await c.pilot.pause()
        await c.until(lambda: not c.composer.disabled)
        assert c.app.is_running
        assert c.app.defect is None
