"""Chat templates made to loop, to fill the memory, to recurse and to reach what is not theirs."""

from __future__ import annotations

from pathlib import Path

from faults.entries import outcome
from faults.mutations import MEMORY, Chance

_PIECES = (
    "{% for m in messages %}", "{% endfor %}", "{% set x = 'a' * 2000000000 %}", "{{ x }}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "{% if x %}",
    "{% endif %}", "{{ m.content }}", "{{ ''.__class__.__mro__ }}", "{{ messages.__init__ }}",
    "{{ cycler.__init__.__globals__ }}", "{{ 9 ** 99999999 }}", "{{ raise_exception('\x1b[2J') }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ messages | tojson }}", "{{ 1 / 0 }}",
    "{{ lipsum(n=100000) }}", "{{ 'x' | center(999999999) }}", "{% set x = [1] * 99999999 %}",
    "{{ '%999999999d' % 1 }}", "{{ x.y.z }}", "{{ strftime_now('%Y' * 99999) }}", "{# #}", "{{",
    "{% include 'x' %}", "{{ range(10) | list | join(',') }}", "{{ messages[99] }}", "(" * 300,
    "{% set ns = namespace(a=1) %}", "{% break %}", "{{ dict(a=1) | items | list }}", "\0",
    "\ud800",
)  # fmt: skip


def template(chance: Chance, _: Path) -> str | None:
    """Chat templates put together of what hostile ones are made of."""
    from localspec.core.events import Message
    from localspec.generation import template_process
    from localspec.generation.chat_template import Template

    template_process.SECONDS = 1.0  # type: ignore[misc]
    assert template_process.MEMORY < MEMORY
    source = "".join(chance.choices(_PIECES, k=chance.randint(1, 4)))
    made = lambda: Template(source, bos="<s>", eos="").render([Message("user", "hi\ud800")])  # noqa: E731
    return outcome(made)
