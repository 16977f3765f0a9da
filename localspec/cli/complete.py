"""Names that a shell completes: models, presets, chats, and the choices of settings.

A shell asks for them at each Tab, so nothing here imports numpy, llama.cpp or the Hub's library.
Errors are left out: a shell has no place to show them, and the command itself reports them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

from localspec.core.errors import LocalspecError
from localspec.core.setting_spec import Kind, SettingSpec

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_CHATS = 50
"""Chats that are offered, the ones used last."""
_SHORT_ID = 8
_FILE = [CompletionItem("", type="file")]
"""Leaves it to the shell to complete a path."""


def of_setting(spec: SettingSpec[Any]) -> Completer | None:
    """The completer of a setting; None where it takes a number or any text."""
    if spec.name == "model":
        return models
    if spec.name == "draft":
        return drafts
    if spec.kind is Kind.NAMES:
        return lambda _ctx, _param, typed: _listed(spec.choices, typed)
    if spec.choices:
        return lambda _ctx, _param, typed: _starting(dict.fromkeys(spec.choices, ""), typed)
    return None


def models(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Names of the catalogue, and paths."""
    return _models(typed, {})


def drafts(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Values of ``--draft``."""
    return _models(typed, {"none": "no draft model", "auto": "the one that belongs to the model"})


def presets(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Names of presets."""
    from localspec.config import presets as saved

    with contextlib.suppress(LocalspecError):
        return _starting({name: preset.about for name, preset in saved.presets().items()}, typed)
    return []


def chats(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Beginnings of the ids of chats, with their titles."""
    return _chats(typed, removed=False)


def removed_chats(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """The same for chats that were removed."""
    return _chats(typed, removed=True)


def _chats(typed: str, *, removed: bool) -> list[CompletionItem]:
    from localspec.chats import schema
    from localspec.chats.store import ChatStore

    path = schema.default_path()
    if not path.exists():
        return []
    with contextlib.suppress(LocalspecError, OSError), ChatStore(path) as store:
        listed = store.listed(removed=removed, limit=_CHATS)
        return _starting({c.info.id[:_SHORT_ID]: c.info.title for c in listed}, typed)
    return []


def _models(typed: str, words: dict[str, str]) -> list[CompletionItem]:
    from localspec.models.catalog.catalog import catalog

    names = dict(words)
    with contextlib.suppress(LocalspecError):
        names |= {name: pair.about for name, pair in catalog().items()}
    return _starting(names, typed) or _FILE


def _listed(names: Iterable[str], typed: str) -> list[CompletionItem]:
    """The last of several names with commas between them."""
    before, comma, last = typed.rpartition(",")
    taken = before.split(",")
    return [
        CompletionItem(f"{before}{comma}{name}")
        for name in names
        if name.startswith(last) and name not in taken
    ]


def _starting(names: dict[str, str], typed: str) -> list[CompletionItem]:
    return [
        CompletionItem(name, help=" ".join(about.split()))
        for name, about in names.items()
        if name.startswith(typed)
    ]
