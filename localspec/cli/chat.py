"""``localspec chat``: the interface in a terminal, lines in and replies out elsewhere."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.chats.calls import calls_as_text
from localspec.chats.schema import default_path
from localspec.chats.values import model_at, split_model
from localspec.cli import complete, elsewhere, interface
from localspec.cli.acting import Acting, acting, require_alone, tool_flags
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
from localspec.cli.interrupt import CtrlC
from localspec.cli.output import decode, in_terminal, stdin_line, tell, write
from localspec.config import allow_tools
from localspec.core import settings_schema as schema
from localspec.core.errors import LocalspecError, ModelNotFoundError, RemoteError, UsageError
from localspec.core.events import Finished, Notice, ReplyEvent, Token
from localspec.core.options import NO_DRAFT
from localspec.core.reply_request import ReplyRequest
from localspec.remote.address import split_path

if TYPE_CHECKING:
    from localspec.chats.journal import Journal
    from localspec.chats.values import Chat
    from localspec.cli.line_commands import Silent
    from localspec.remote.blocking import BlockingClient
    from localspec.runtime import Runtime
    from localspec.tools.written_calls import WrittenCalls


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
    return _lines(asked, system, chat, server, instead, (allowed, folder))


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


def _lines(
    asked: SharedFlags,
    system: str | None,
    chat: Chat | None,
    server: Elsewhere | None,
    instead: str,
    tools: tuple[tuple[str, ...], str | None],
) -> int:
    """One line in, one reply out, until the input ends.

    The chat is saved if stdin is a terminal or a saved chat is continued.
    """
    from localspec.chats.journal import Journal
    from localspec.chats.saver import Saver
    from localspec.models.catalog.portable import portable

    saver = Saver(tell=tell) if sys.stdin.isatty() or chat is not None else None
    options = asked.options
    journal = Journal(
        saver,
        system=system,
        model=portable(options.model) if server is None else None,
        draft=portable(options.draft) if server is None else None,
        resumed=chat,
    )
    unsaved: tuple[str, ...] = ()
    try:
        code = _answer_lines(asked, journal, server, tools)
    except RemoteError as error:
        raise RemoteError(f"{error}{instead}") from None
    finally:
        if saver is not None:
            unsaved = saver.close()
        for line in unsaved:
            tell(line)
    return code or int(bool(unsaved))


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


def _answer_lines(
    asked: SharedFlags,
    journal: Journal,
    server: Elsewhere | None,
    tools: tuple[tuple[str, ...], str | None],
) -> int:
    from localspec.cli.line_commands import Leaving, Talk, speaker

    with (
        CtrlC() as ctrl_c,
        acting(*tools, lambda: ctrl_c.pressed) as act,
        elsewhere.opened(asked.options, server, lambda: ctrl_c.pressed, share=False) as runtime,
    ):
        if server is not None:
            journal.use_model(model_at(str(server.address), runtime.info.name))
        journal.drafted_by = Path(runtime.info.draft).stem if runtime.info.draft else None
        ctrl_c.on_first = runtime.interrupt
        for notice in runtime.info.notices:
            tell(notice)
        voice, failed = speaker(), False
        act.context = runtime.info.context
        voice.welcome(journal.so_far)
        talk = Talk(journal, asked.sampling, asked.seed)
        for typed in _input_lines(ctrl_c, voice):
            text = typed.strip()
            if not text:
                continue
            try:
                if voice.obeys(typed, talk):
                    continue
                request = ReplyRequest(
                    sampling=talk.sampling,
                    seed=talk.seed,
                    max_tokens=asked.max_tokens,
                    grammar=talk.grammar,
                    draft_memory=True,
                )
                act.begin()
                with talk.saying(text) as message:
                    goes_on = _reply(request, message, journal, act, runtime, voice)
                while goes_on and not ctrl_c.pressed:
                    goes_on = _reply(request, None, journal, act, runtime, voice)
            except Leaving:
                break
            except (UsageError, RemoteError) as error:
                # Another message may be answered, and the server may be back for it.
                tell(str(error))
                failed = True
            if ctrl_c.pressed and not (sys.stdin.isatty() and ctrl_c.forget()):
                return 130
    return 1 if failed and not sys.stdin.isatty() else 0


def _reply(
    base: ReplyRequest,
    question: str | None,
    journal: Journal,
    act: Acting,
    runtime: Runtime | BlockingClient[Any],
    voice: Silent,
) -> bool:
    """One reply, and the calls that it makes; whether the model is to read their results."""
    messages = journal.messages(question)
    if act.tools is None:
        messages = calls_as_text(messages)
    request = act.request(replace(base, messages=messages))
    written = act.reader(request)
    _stream(runtime.submit(request), question, journal, voice, written)
    if written is None or written.at is None:
        return False
    goes_on = act.goes_on(written)
    if goes_on:  # saved before they run: the program may end meanwhile, and they have run then
        journal.called(
            [replace(c, state="running") if c.state == "waiting" else c for c in written.calls],
            written.at,
        )
    journal.called(act.run(written) if goes_on else written.calls, written.at)
    return goes_on


def _stream(
    events: Iterator[ReplyEvent],
    question: str | None,
    journal: Journal,
    voice: Silent,
    written: WrittenCalls | None,
) -> None:
    shown = 0
    begun = False
    late: list[str] = []
    """Notices that would be in the middle of a line of the reply."""
    journal.ask(question)  # a long prompt is read for minutes, in which the program may end
    try:
        for event in events:
            if isinstance(event, Token | Finished) and not begun:
                begun = True
                journal.begin(question)
                voice.answers()
            if written is not None:
                written.take(event)
            if isinstance(event, Token):
                text = event.text if written is None else written.said[shown:]
                write(text)
                journal.grow(event.text)
                shown += len(text)
            elif isinstance(event, Notice):
                (late.append if begun else tell)(event.text)
            elif isinstance(event, Finished):
                whole = event.reply.text if written is None else written.said
                write(whole[shown:] + "\n")
                journal.end(event.reply)
                voice.answered(event.reply)
    except LocalspecError:  # a server that is gone, a grammar that takes too long
        if begun:  # what had arrived is kept
            write("\n")
            journal.fail()
        else:
            journal.leave_out()
        raise
    finally:
        for text in late:
            tell(text)


def _input_lines(ctrl_c: CtrlC, voice: Silent) -> Iterator[str]:
    """Lines of stdin; Ctrl-C raises while it waits, since there is no reply to end.

    Raises:
        UsageError: one is not UTF-8, and was not typed; what was typed may be typed again.
    """
    for number in itertools.count(1):
        voice.asks()
        try:
            with ctrl_c.raising():
                line = stdin_line()
        except OSError as error:
            raise LocalspecError(f"cannot read stdin: {error.strerror}") from None
        if not line:
            voice.leaves()
            return
        try:
            text = decode(line, f"line {number} of stdin")
        except UsageError as error:
            if not sys.stdin.isatty():
                raise
            tell(str(error))
        else:
            yield text.rstrip("\r\n")
