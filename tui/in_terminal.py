"""Runs the interface in this terminal, for the command line: with an engine of its own, or with one
on a server.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from localspec.chats.saver import Saver
from localspec.chats.values import Chat
from localspec.config import allow_tools
from localspec.config import settings as config_settings
from localspec.config.presets import Preset
from localspec.core.files import paths
from localspec.core.safe_text import safe_line
from localspec.core.sampling_params import Sampling
from localspec.core.settings_schema import ALLOW_TOOLS, FIGURES, NOTIFY, TITLES, TOOLS
from localspec.engine.client import EngineClient
from localspec.engine.port import Engine
from tui.app import ChatApp
from tui.input import keymap
from tui.session.recorder import ChatRecorder
from tui.session.settings import Settings
from tui.session.tool_shelf import ToolShelf
from tui.terminal.resources import MESSAGE_SECONDS
from tui.terminal.theme import wanted

if TYPE_CHECKING:
    from localspec.core.options import Options


def run(
    options: Options,
    sampling: Sampling,
    max_tokens: int | None = None,
    seed: int | None = None,
    system: str | None = None,
    resume: Chat | None = None,
    *,
    race: bool = False,
    allowed: tuple[str, ...] = (),
    folder: str | None = None,
    preset: Preset | None = None,
) -> int:
    """Run the interface in this terminal, with a ``race`` at its start; the exit code. Tools that
    are ``allowed`` run without being asked for; ``folder`` is opened for the model to read;
    ``preset`` says which tools are offered.

    An unexpected exception is raised after the terminal is restored.
    """
    options = dataclasses.replace(options, save_states=True)
    engine = EngineClient(options, log_dir=paths.state_dir(), interval=MESSAGE_SECONDS)
    app = ChatApp(
        engine,
        Settings(sampling, max_tokens, seed),
        name=options.model,
        verifier=options.verifier,
        system=system,
        recorder=ChatRecorder(Saver(), options.model, options.draft),
        resume=resume,
        options=options,
        reopen=lambda other: EngineClient(
            other, log_dir=paths.state_dir(), interval=MESSAGE_SECONDS
        ),
        race=race,
        **configured(),
    )
    app.session.tools.allow(allowed)
    if preset is not None and TOOLS.name in preset.values:
        app.session.tools.only = allow_tools.offered(preset.values)
    app.session.tools.begin_with = None if folder is None else Path(folder)
    return run_app(app, Path(options.model).name)


class Configured(TypedDict):
    """The part of the user's config.toml that concerns the interface."""

    keys: Mapping[str, str]
    theme: str
    expert: bool
    tools: ToolShelf
    notify: str
    titles: str


def configured() -> Configured:
    """The settings of the interface.

    Raises:
        UsageError: one of them is refused.
    """
    found = config_settings.settings()
    with config_settings.named(ALLOW_TOOLS.name):
        shelf = ToolShelf(allow_tools.names(found), allow_tools.add)
    with config_settings.named(TOOLS.name):
        shelf.only = allow_tools.offered(found)
    return Configured(
        keys=keymap.overrides(found),
        theme=wanted(found),
        expert=config_settings.value(FIGURES) == "all",
        notify=str(config_settings.value(NOTIFY)),
        titles=str(config_settings.value(TITLES)),
        tools=shelf,
    )


def run_app(app: ChatApp, name: str, instead: str = "") -> int:
    """Run an interface in this terminal, ``name`` in its title; the exit code. ``instead`` ends the
    error of an interface that cannot start.

    An unexpected exception is raised after the terminal is restored.
    """
    for line in config_settings.unknown():
        app.session.tell(f"{paths.config_dir() / 'config.toml'}: {line}")
    app.in_terminal = True
    with _window_title(f"localspec · {name}"):
        app.run()
    if app.failure is not None:
        _tell(f"{app.failure}{instead}")
    for line in app.unsaved:
        _tell(line)
    if app.defect is not None:
        raise app.defect
    return app.return_code or int(bool(app.unsaved))


def _tell(message: str) -> None:
    """An exit message, one line on stderr."""
    click.echo(f"localspec: {safe_line(message)}", err=True)


@contextlib.contextmanager
def _window_title(title: str) -> Iterator[None]:
    """The title of the terminal window, put back at the end where the terminal can."""
    terminal = sys.__stderr__
    if terminal is None or not terminal.isatty():
        yield
        return
    terminal.write(f"\x1b[22;2t\x1b]2;{safe_line(title)}\x07")
    terminal.flush()
    try:
        yield
    finally:
        terminal.write("\x1b[23;2t")
        terminal.flush()


def run_elsewhere(
    engine: Engine,
    name: str,
    sampling: Sampling,
    max_tokens: int | None = None,
    seed: int | None = None,
    system: str | None = None,
    resume: Chat | None = None,
    *,
    instead: str = "",
) -> int:
    """Run the interface in this terminal; the exit code. ``name`` is shown until ``engine`` is
    connected; ``instead`` ends the error where that fails.

    An unexpected exception is raised after the terminal is restored.
    """
    app = ChatApp(
        engine,
        Settings(sampling, max_tokens, seed),
        name=name,
        verifier="of the server",
        system=system,
        recorder=ChatRecorder(Saver()),
        resume=resume,
        **configured(),
    )
    return run_app(app, name, instead)
