"""``localspec chat`` without a screen: lines in, replies out."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.chats.calls import calls_as_text
from localspec.chats.values import model_at
from localspec.cli import elsewhere
from localspec.cli.acting import Acting, acting
from localspec.cli.elsewhere import Elsewhere
from localspec.cli.flags import SharedFlags
from localspec.cli.interrupt import CtrlC
from localspec.cli.output import decode, stdin_line, tell, write
from localspec.core.errors import LocalspecError, RemoteError, UsageError
from localspec.core.events import Finished, Notice, ReplyEvent, Token
from localspec.core.reply_request import ReplyRequest

if TYPE_CHECKING:
    from localspec.chats.journal import Journal
    from localspec.chats.values import Chat
    from localspec.cli.line_commands import Silent
    from localspec.remote.blocking import BlockingClient
    from localspec.runtime import Runtime
    from localspec.tools.written_calls import WrittenCalls


def chat_in_lines(
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
