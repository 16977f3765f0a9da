"""Reasoning models: the grammar begins where their thinking ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localspec.grammar.thought_end import ThoughtEnd

_HARMONY = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
_MARKERS = (
    _HARMONY,
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<reasoning>", "</reasoning>"),
)
"""(Begin, end) of the thinking of known model families."""


_BEFORE_FINAL = "<|end|><|start|>assistant"
"""Between the thinking of gpt-oss and the marker of its answer."""


def markers(template: str | None) -> tuple[str, ...]:
    """The marker that begins the thinking of a template's replies, then those that may end it; none
    where it has none that is known.
    """
    for begin, end in _MARKERS:
        if template is not None and end in template and (begin in template or end == "</think>"):
            return (begin, end, *((_BEFORE_FINAL + end,) if begin == _HARMONY[0] else ()))
    return ()


def begun(prompt: str, unfinished: str, found: Sequence[str]) -> bool:
    """Whether a prompt ends inside a thinking with these ``markers``; ``unfinished`` is the
    beginning of the reply that it ends with.
    """
    if not found:
        return False
    begin, *ends = found
    before = prompt.removesuffix(unfinished).rstrip()
    # Inside of a text it is a word like others, and behind a thought, as where a reply is read.
    says_so = unfinished.lstrip().startswith(begin) and not before.endswith(tuple(ends))
    opened = says_so or before.endswith(begin)
    return opened and not any(end in unfinished for end in ends)


def rest_of_thought(prompt: str, thought: str, answer: str, found: Sequence[str]) -> str:
    """The text between a prompt and the beginning of its ``answer`` that is continued: the
    ``thought`` and the marker behind it, where the prompt ends inside a thinking with the markers
    ``found``, else nothing. Without a thought, what is continued may be one.
    """
    if not thought or not begun(prompt, "", found) or any(end in answer for end in found[1:]):
        return ""
    before, behind = ("\n", "\n\n") if prompt.endswith("\n") else ("", "")
    return f"{thought}{before}{found[-1]}{behind}"


@dataclass(frozen=True, slots=True)
class Thinking:
    """Where the thinking in a reply ends."""

    close: ThoughtEnd
    optional: int | None = None
    """The first token of a reply that thinks; None where the prompt began the thinking."""

    def end(self, tokens: Sequence[int], start: int, searched: int) -> int | None:
        """The place after the thinking of the reply that begins at ``start``; None before that.

        It is known not to end in the first ``searched`` tokens.
        """
        if self.optional is not None and (len(tokens) == start or tokens[start] != self.optional):
            return start
        return self.close.place(tokens, start, searched)


def thinking(
    template: str | None,
    prompt: str,
    tokenize: Callable[[str], list[int]],
    close: Callable[[str], ThoughtEnd],
) -> Thinking | None:
    """The thinking of a reply to ``prompt``, as the chat template has it; None where it has none.

    ``tokenize`` makes tokens of a marker, control tokens included, and ``close`` gives the end that
    a marker is. Where the marker that begins it is not a token of its own, only a thinking that the
    prompt begins is recognised.
    """
    for begin, end in _MARKERS:
        if template is None or begin not in template or end not in template:
            continue
        if prompt.rstrip().endswith(begin):
            return Thinking(close(end))
        if prompt.rstrip().endswith(end):
            return None  # switched off: the template has written an empty thought
        opening = tokenize(begin)
        if len(opening) == 1 or begin.startswith("<|channel|>"):
            return Thinking(close(end), opening[0])
    return None
