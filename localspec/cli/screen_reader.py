"""Announcements of a chat in lines: who speaks, and how a reply ended.

For screen readers and terminals that cannot place a cursor: whole lines in order, nothing drawn
over, no colour. They go to stderr, so stdout has only replies; a pipe gets no announcements.
"""

from __future__ import annotations

import sys

from localspec.cli.line_commands import Talk
from localspec.cli.output import say
from localspec.core.events import Reply

_ENDINGS = {"stop": "", "length": ", stopped at the limit", "interrupt": ", stopped by you"}


class Silent:
    """Announces nothing: there is no terminal."""

    def welcome(self, so_far: tuple[str, int] | None = None) -> None:
        """Before the first message; ``so_far``: title and length of a chat that is continued."""

    def asks(self) -> None:
        """A message is waited for."""

    def leaves(self) -> None:
        """No more messages come."""

    def obeys(self, line: str, talk: Talk) -> bool:
        """Do what a line says if it is a command; whether it was. Errors: see `Talk.obey`."""
        del line, talk
        return False

    def answers(self) -> None:
        """A reply begins."""

    def answered(self, reply: Reply) -> None:
        """The reply has ended."""


class Spoken(Silent):
    """Names the speaker, and says in words how a reply ended."""

    def welcome(self, so_far: tuple[str, int] | None = None) -> None:
        """Announce how to use the chat, and which chat it is."""
        say("Type a message and press Enter. /help lists commands, /quit leaves.")
        if so_far is not None:
            title, count = so_far
            messages = "1 message" if count == 1 else f"{count} messages"
            say(f"Continuing {title}, {messages} so far.")

    def asks(self) -> None:
        """Announce the user's turn."""
        say("You: ", end="")

    def leaves(self) -> None:
        """End the line that was begun for the user."""
        say()

    def obeys(self, line: str, talk: Talk) -> bool:
        """Announce what the command did."""
        answer = talk.obey(line)
        for part in answer.splitlines() if answer is not None else ():
            say(part)
        return answer is not None

    def answers(self) -> None:
        """Announce the model's turn."""
        say("Model: ", end="")

    def answered(self, reply: Reply) -> None:
        """Announce the length and speed of the reply, and whether drafting is on."""
        stats = reply.stats
        speculation = stats.speculation
        state = "drafting on" if speculation.state == "on" else speculation.state
        reason = f": {speculation.reason}" if speculation.reason else ""
        tokens = "1 token" if stats.emitted == 1 else f"{stats.emitted} tokens"
        say(
            f"({tokens}, {stats.tokens_per_second:.0f} tokens per second, {state}{reason}"
            f"{_ENDINGS[reply.finish_reason]})"
        )


def speaker() -> Silent:
    """Announcements for this terminal, or none without a terminal."""
    terminal = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    return Spoken() if terminal else Silent()
