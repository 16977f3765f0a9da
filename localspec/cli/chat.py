"""``localspec chat``: the interface in a terminal, lines in and replies out elsewhere."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import click

from localspec.cli.flags import Asked, model_flags, sampling_flags, sort_flags
from localspec.cli.interrupt import CtrlC
from localspec.cli.texts import decode, write
from localspec.errors import LocalspecError, UsageError
from localspec.events import Finished, Message, Notice, Token

_INTERFACE = "tui.app"
"""The interface stands on top of the core; the core only knows where the door is."""


@click.command("chat")
@click.argument("model", required=False)
@click.option("-s", "--system", metavar="TEXT", help="System message.")
@click.option("--plain", is_flag=True, help="Lines in, replies out, as without a terminal.")
@model_flags
@sampling_flags
def command(model: str | None, system: str | None, *, plain: bool, **flags: Any) -> int:
    """Talk to MODEL (default: the embedded demo pair)."""
    asked = sort_flags(model, flags)
    # The interface draws on stderr, so that has to be the terminal as well.
    if not plain and all(s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr)):
        interface = importlib.import_module(_INTERFACE)
        code: int = interface.run(
            asked.options, asked.sampling, asked.max_tokens, asked.seed, system
        )
        return code
    return _lines(asked, system)


def _lines(asked: Asked, system: str | None) -> int:
    """One line in, one reply out, until the input ends."""
    with CtrlC() as ctrl_c:
        from localspec.runtime import Runtime

        messages = [Message("system", system)] if system is not None else []
        with Runtime.open(asked.options, cancelled=lambda: ctrl_c.pressed) as runtime:
            ctrl_c.on_first = runtime.interrupt
            for notice in runtime.info.notices:
                click.echo(f"localspec: {notice}", err=True)
            for number, line in enumerate(_input_lines(ctrl_c), 1):
                text = decode(line, f"line {number} of stdin").strip()
                if not text:
                    continue
                messages.append(Message("user", text))
                shown = 0
                try:
                    for event in runtime.reply(
                        messages,
                        sampling=asked.sampling,
                        seed=asked.seed,
                        max_tokens=asked.max_tokens,
                    ):
                        if isinstance(event, Token):
                            write(event.text)
                            shown += len(event.text)
                        elif isinstance(event, Notice):
                            click.echo(f"localspec: {event.text}", err=True)
                        elif isinstance(event, Finished):
                            write(event.reply.text[shown:] + "\n")
                            messages.append(Message("assistant", event.reply.text))
                except UsageError as error:  # this message cannot be answered; the next one may
                    click.echo(f"localspec: {error}", err=True)
                    messages.pop()
                if ctrl_c.pressed:
                    return 130
    return 0


def _input_lines(ctrl_c: CtrlC) -> Iterator[bytes]:
    """Lines of stdin; while one is waited for, there is no reply to end, and Ctrl-C raises."""
    while True:
        try:
            with ctrl_c.raising():
                line = sys.stdin.buffer.readline()
        except OSError as error:
            raise LocalspecError(f"cannot read stdin: {error.strerror}") from None
        if not line:
            return
        yield line
