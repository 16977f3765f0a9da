"""``localspec chat``: the interface in a terminal, lines in and replies out elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from localspec.chats.schema import default_path
from localspec.chats.values import split_model
from localspec.cli import complete, elsewhere, interface
from localspec.cli.acting import require_alone, tool_flags
from localspec.cli.chat_lines import chat_in_lines
from localspec.cli.containment import contain
from localspec.cli.elsewhere import Elsewhere, connect_flag, url_flag
from localspec.cli.flags import (
    LOADING,
    SharedFlags,
    chosen_preset,
    flags_of,
    given,
    model_argument,
    preset_flag,
    sampling_flags,
    setting_option,
    sort_flags,
    system_message,
    with_jobs,
)
from localspec.cli.interface import note_race
from localspec.cli.output import in_terminal, tell
from localspec.config import allow_tools
from localspec.core import settings_schema as schema
from localspec.core.errors import LocalspecError, ModelNotFoundError, UsageError
from localspec.core.options import NO_DRAFT
from localspec.remote.address import split_path

if TYPE_CHECKING:
    from localspec.chats.values import Chat


@click.command("chat")
@model_argument
@setting_option(schema.SYSTEM, sources=False)
@click.option("-c", "--continue", "last", is_flag=True, help="Continue the last chat.")
@click.option(
    "--resume",
    metavar="ID",
    shell_complete=complete.chats,
    help="Continue this chat; `localspec chats` lists them.",
)
@click.option(
    "--plain",
    is_flag=True,
    help="Plain lines instead of the full-screen interface, for screen readers.",
)
@url_flag
@connect_flag
@tool_flags
@preset_flag
@flags_of(LOADING, jobs="what fits")
@sampling_flags
def command(
    model: str | None,
    system: str | None,
    resume: str | None,
    *,
    last: bool,
    plain: bool,
    url: str | None,
    connect: str | None,
    allowed: tuple[str, ...],
    folder: str | None,
    **flags: Any,
) -> int:
    """Chat with MODEL (default: the embedded demo pair, or the model of the resumed chat)."""
    chat, named = _resumed(resume, last=last), model
    there = split_model(chat.info.model) if chat is not None and model is None else None
    instead = ""
    if there is not None and (url, connect) == (None, None):
        instead = "; `localspec chat MODEL -c` continues this chat with a model of this machine"
        if split_path(there[0]):
            url, model = there
        else:
            connect = there[0]
    elif chat is not None and model is None and (url, connect) == (None, None):
        model = chat.info.model
        flags["draft"] = flags["draft"] or draft_of(chat)
    asked = sort_flags(model, flags)
    preset = chosen_preset()
    system = system_message(system)
    if url is not None and connect is not None:
        raise UsageError("--url and --connect name two servers; give one of them")
    require_alone(allowed, folder, (url, connect))
    server = elsewhere.chosen(url, model, asked.sampling)
    server = server or elsewhere.connected(connect, named, asked.sampling)
    # The interface draws on stderr, so that has to be the terminal as well.
    if not plain and in_terminal():
        server = server or elsewhere.offered(asked.options, asked.sampling)
        if server is not None:
            return _over(server, asked, system, chat, instead)
        screen = interface.module("in_terminal")
        code: int = screen.run(
            with_jobs(asked.options, schema.SPARE_JOBS),
            asked.sampling,
            asked.max_tokens,
            asked.seed,
            system,
            chat,
            race=_first_start(),
            allowed=allow_tools.checked(allowed),
            folder=folder,
            preset=preset,
        )
        return code
    if server is None:
        contain()
    return chat_in_lines(asked, system, chat, server, instead, (allowed, folder))


def _resumed(name: str | None, *, last: bool) -> Chat | None:
    """The chat to continue; None for a new one."""
    if name is None and not last:
        return None
    from localspec.cli.chats import to_resume

    return to_resume(name, last=last)


def _over(
    server: Elsewhere, asked: SharedFlags, system: str | None, chat: Chat | None, instead: str
) -> int:
    """The interface with a server elsewhere; ``instead`` is said where it cannot be reached."""
    screen = interface.module("in_terminal")
    code: int = screen.run_elsewhere(
        server.client(),
        server.name,
        asked.sampling,
        asked.max_tokens,
        asked.seed,
        system,
        chat,
        instead=instead,
    )
    return code


def _first_start() -> bool:
    """Whether this is a user's first chat, asked for without any argument: it begins with the race
    that `localspec demo` shows. Only once, whether it is watched or left.
    """
    # LOCALSPEC_KERNELS may compare kernels: a first start all the same.
    if any(given(name) for name in click.get_current_context().params if name != "kernels"):
        return False
    return not default_path().exists() and note_race()


def draft_of(chat: Chat) -> str | None:
    """The draft that the chat was last used with, if its file still exists."""
    from localspec.models.catalog.resolve import draft_file

    draft = chat.info.draft
    if draft is not None and draft != NO_DRAFT:
        try:
            file = draft_file(draft)
            if not file.path.exists():
                raise ModelNotFoundError(f"{file.path} is missing")
        except LocalspecError as error:
            tell(f"this chat continues without its draft: {error}")
            return None
    return draft
