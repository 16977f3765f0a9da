"""Settings and models are changed while chatting; the conversation stays."""

from __future__ import annotations

import pytest
from fake_engine import FakeEngine, Script
from test_chat import LONG

from localspec.errors import UsageError
from localspec.options import Options
from localspec.parameters import Sampling
from tui import tuning


def test_settings_are_listed_with_their_values():
    rows = dict(tuning.rows(Sampling(top_k=7), Options(drafter=("suffix", "model"))))
    assert rows["top_k"] == "7"
    assert rows["drafter"].startswith("suffix,model")
    assert rows["draft_max"] == "auto"


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("top-k 5", ("top_k", 5)),
        ("min_p=0.1", ("min_p", 0.1)),
        ("TEMPERATURE 0", ("temperature", 0)),
    ],
)
def test_sampling_is_changed_by_name(text, changed):
    name, value = tuning.read(text)
    found = tuning.sampled(Sampling(), name, value)
    field, expected = changed
    assert getattr(found, field) == expected


@pytest.mark.parametrize("text", ["colour 3", "top_k", "top_k many", "top_p 7", "threads few"])
def test_what_cannot_be_meant_is_refused(text):
    with pytest.raises((tuning.SettingError, UsageError)):
        _change(text)


def _change(text):
    name, value = tuning.read(text)
    return tuning.sampled(Sampling(), name, value) or tuning.loaded(name, value)


async def test_another_model_goes_on_with_the_conversation(chat):
    second = FakeEngine([Script("from the second")])
    async with chat(Script(LONG)) as c:
        await c.ask("Hello")
        c.session.options = Options()
        opened = []
        c.session._reopen = lambda options: opened.append(options) or second
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
