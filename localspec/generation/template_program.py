"""A chat template as a program: compiling and running it in Jinja's sandbox.

The sandbox keeps a template from the machine; it does not bound what it takes. What may run in this
process is told by `is_bounded`; everything else runs in `localspec.generation.template_process`.
"""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

LONGEST_SOURCE = 1 << 18
"""Characters of a template; the longest known ones have 40,000."""
THINKING = "enable_thinking"
"""The variable of templates that switches thinking."""
RESERVED = ("messages", "tools", "add_generation_prompt", "bos_token", "eos_token")
"""Variables of templates that a request cannot set by name."""
_LONGEST_BOUNDED = 1 << 14
_BOUNDED = (
    jinja2.nodes.Template,
    jinja2.nodes.Output,
    jinja2.nodes.TemplateData,
    jinja2.nodes.Const,
    jinja2.nodes.Name,
    jinja2.nodes.Getattr,
    jinja2.nodes.Getitem,
    jinja2.nodes.If,
    jinja2.nodes.CondExpr,
    jinja2.nodes.Compare,
    jinja2.nodes.Operand,
    jinja2.nodes.And,
    jinja2.nodes.Or,
    jinja2.nodes.Not,
    jinja2.nodes.Add,
    jinja2.nodes.Concat,
)
_FILTERS = frozenset({"trim", "capitalize", "lower", "upper"})


class BrokenTemplateError(Exception):
    """The source is not a template."""


class RefusedError(Exception):
    """The template refuses these messages, or fails on them."""


class Program:
    """One compiled template."""

    def __init__(self, source: str) -> None:
        """Compile.

        Raises:
            BrokenTemplateError: it is not valid Jinja.
        """
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise BrokenTemplateError(str(error)) from None
        except (RecursionError, SyntaxError, ValueError, OverflowError, MemoryError) as error:
            raise BrokenTemplateError(f"{type(error).__name__}") from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        bos: str,
        eos: str,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt for messages of role and content; ``variables`` are further ones of the
        template.

        Raises:
            RefusedError: the template raised something.
        """
        try:
            return self._template.render(
                {
                    **(variables or {}),
                    "messages": [dict(message) for message in messages],
                    "add_generation_prompt": True,
                    "bos_token": bos,
                    "eos_token": eos,
                }
            )
        except Exception as error:  # noqa: BLE001 - it is a program, and not ours
            raise RefusedError(str(error) or type(error).__name__) from None


def is_bounded(source: str) -> bool:
    """Whether a template takes time and memory in proportion to its messages only: it loops over
    them once, keeps nothing and calls nothing.
    """
    if len(source) > _LONGEST_BOUNDED:
        return False
    try:
        tree = _environment().parse(source)
    except (jinja2.TemplateError, RecursionError):
        return False
    return all(_is_harmless(node) for node in _nodes(tree))


def names(source: str) -> int:
    """How often a template names something that it may write."""
    tree = _environment().parse(source)
    return sum(isinstance(node, jinja2.nodes.Name) for node in _nodes(tree))


def _nodes(tree: jinja2.nodes.Node) -> list[jinja2.nodes.Node]:
    found, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting.extend(node.iter_child_nodes())
    return found


def _is_harmless(node: jinja2.nodes.Node) -> bool:
    match node:
        case jinja2.nodes.For(iter=jinja2.nodes.Name(name="messages"), recursive=False):
            return node.find(jinja2.nodes.For) is None
        case jinja2.nodes.Filter(name=name, args=[], kwargs=[]):
            return name in _FILTERS
        case jinja2.nodes.Test(args=[], kwargs=[]):
            return True
    return isinstance(node, _BOUNDED)


@functools.cache
def _environment() -> jinja2.sandbox.SandboxedEnvironment:
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)  # noqa: DTZ005 - local time is what a chat means
    return environment


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
