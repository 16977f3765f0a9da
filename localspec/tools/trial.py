"""Tries out the calls of one tool before a model is offered it."""

from __future__ import annotations

from localspec.core.grammar_spec import GrammarSpec
from localspec.grammar.checking import Checker
from localspec.grammar.tool_families import FAMILIES


def require(spec: GrammarSpec) -> None:
    """Refuse a tool whose calls cannot be followed. Blocks; a process with limits computes.

    Raises:
        UsageError: its schema cannot be followed, or takes too much.
    """
    Checker().checked(spec, next(iter(FAMILIES)))
