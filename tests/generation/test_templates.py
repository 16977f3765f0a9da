"""Chat templates are programs of strangers: what they may take, and how they end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import gguf_tools
import psutil
import pytest
from conftest import Files

from localspec.core.errors import (
    Interrupted,
    ThinkingSwitchError,
    UnsupportedModelError,
    UsageError,
)
from localspec.core.events import Message
from localspec.generation import template_process
from localspec.generation.chat_template import PLAIN_TEMPLATE, Template
from localspec.generation.template_process import TemplateProcess
from localspec.generation.template_program import LONGEST_SOURCE, is_bounded
from localspec.models.catalog.resolve import resolve

HELLO = [Message("user", "hello")]
ENDLESS = (
    "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
    "{% endfor %}{% endfor %}{% endfor %}"
)
DOUBLING = (
    "{% set ns = namespace(x='aaaa') %}{% for i in range(60) %}"
    "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}"
)


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[TemplateProcess]:
    """A process of the test's own."""
    found = TemplateProcess()
    monkeypatch.setattr(template_process, "shared", lambda: found)
    yield found
    found.close()


def rendered(source: str, cancelled=lambda: False) -> str:
    return Template(source, bos="<s>", eos="").render(HELLO, cancelled)


@pytest.mark.parametrize(
    "source",
    [
        "{% set x = 'a' * 2000000000 %}{{ x | length }}",
        "{{ 'a' * 2000000000 }}",
        DOUBLING,
        "{{ '%1999999999d' | format(1) }}",
        "{{ range(99999) | list * 99999 }}",
        "{{ 'x' | center(1999999999) }}",
    ],
)
def test_a_template_that_asks_for_much_memory_is_refused_in_one_line(source: str) -> None:
    with pytest.raises((UsageError, UnsupportedModelError)) as caught:
        rendered(source)
    assert str(caught.value).startswith("the model's chat template")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("source", [ENDLESS, "{% set x = 9 ** (9 ** 9) %}"])
def test_an_endless_template_is_ended_and_the_next_one_works(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_process, "SECONDS", 0.2)
    monkeypatch.setattr(template_process, "STARTING_SECONDS", 0.3)
    with pytest.raises((UsageError, UnsupportedModelError), match="takes more than"):
        rendered(source)
    monkeypatch.undo()
    assert rendered("{{ bos_token }}{% set x = 1 %}{{ x + 1 }}").endswith("2")


def test_a_template_is_ended_when_nobody_waits_for_it_any_more(process: TemplateProcess) -> None:
    stop = threading.Event()
    template = Template(ENDLESS, bos="", eos="")
    stop.set()
    with pytest.raises(Interrupted):
        template.render(HELLO, stop.is_set)
    assert process._process is None


def test_the_process_ends_itself_where_it_is_left_alone(process: TemplateProcess) -> None:
    Template(ENDLESS, bos="", eos="")
    running = process._process
    assert running is not None
    assert psutil.pid_exists(running.pid)
    assert template_process.SECONDS < 60
    running.stdin.close()
    assert running.wait(100) == 0


@pytest.mark.parametrize("depth", [500, 20_000])
def test_deep_nesting_is_no_defect(depth: int) -> None:
    source = "{{ " + "(" * depth + "1" + ")" * depth + " }}"
    with pytest.raises((UsageError, UnsupportedModelError), match="chat template"):
        rendered(source)


def test_a_source_beyond_the_budget_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="is the most"):
        rendered("x" * (LONGEST_SOURCE + 1))


def test_only_templates_that_keep_and_call_nothing_run_here(files: Files) -> None:
    ours = [
        PLAIN_TEMPLATE,
        gguf_tools.CHATML,
        resolve("demo", None).target.header.template or "",
    ]
    assert all(is_bounded(source) for source in ours)
    for source in (
        ENDLESS,
        "{% set x = 1 %}",
        "{{ 'a' * 9 }}",
        "{{ range(9) }}",
        "{% for m in messages %}{% for n in messages %}{% endfor %}{% endfor %}",
        "{% for m in messages[0].content %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ messages | tojson(indent=999999) }}",
        "{{ 'x' | center(1999999999) }}",
        "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
        "{{ " + "(" * 20_000,
        "{% include 'x' %}",
    ):
        assert not is_bounded(source), source


def test_both_ways_render_the_same(process: TemplateProcess) -> None:
    for source in (PLAIN_TEMPLATE, gguf_tools.CHATML):
        here = rendered(source)
        assert process._process is None
        assert rendered(source + "{% set x = 1 %}") == here
        assert process._process is not None
        process.close()


def test_thinking_is_switched_where_a_template_can(process: TemplateProcess) -> None:
    switch = "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    for more in ("", "{% set x = 1 %}"):  # here, and in a process of its own
        template = Template(switch + more, bos="", eos="")
        asked = [Message("user", "Hello")]
        assert template.render(asked) == template.switched(True).render(asked) == ""
        assert template.switched(False).render(asked) == "<think></think>"
    assert process._process is not None
    fixed = Template(PLAIN_TEMPLATE, bos="", eos="")
    assert fixed.switched(None) is fixed
    with pytest.raises(ThinkingSwitchError):
        fixed.switched(False)
