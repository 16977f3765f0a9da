"""Announcements of a plain chat: whose turn it is, and how a reply ended.

For screen readers and terminals that cannot place a cursor: whole lines in their order, nothing
drawn over, no colour. They go to stderr, so that stdout has the replies only; a pipe gets only the
answers to commands.
"""

from __future__ import annotations

import sys

from localspec.cli.line_commands import Talk
from localspec.cli.output import say
from localspec.core import units
from localspec.core.events import Reply

_ENDINGS = {"stop": "", "length": ", stopped at the limit", "interrupt": ", stopped by you"}


class Silent:
    """Announces no turns: there is no terminal."""

    def welcome(self, so_far: tuple[str, int] | None = None) -> None:
        """Before the first message; ``so_far`` is title and length of a continued chat."""

    def asks(self) -> None:
        """Before a message is read."""

    def leaves(self) -> None:
        """After the last message."""

    def obeys(self, line: str, talk: Talk) -> bool:
        """Run a line if it is a command, and say its answer; whether it was one. See `Talk.obey`
        for errors.
        """
        answer = talk.obey(line)
        for part in answer.splitlines() if answer is not None else ():
            say(part)
        return answer is not None

    def answers(self) -> None:
        """Before a reply."""

    def answered(self, reply: Reply) -> None:
        """After a reply."""


class Announcer(Silent):
    """Announces turns, and the statistics of each reply in words."""

    def welcome(self, so_far: tuple[str, int] | None = None) -> None:
        """How to use the chat, and its title if it is continued."""
        say("Type a message and press Enter. /help lists commands, /quit leaves.")
        if so_far is not None:
            title, count = so_far
            messages = "1 message" if count == 1 else f"{count} messages"
            say(f"Continuing {title}, {messages} so far.")

    def asks(self) -> None:
        """The user's turn."""
        say("You: ", end="")

    def leaves(self) -> None:
        """End the line of the prompt."""
        say()

    def answers(self) -> None:
        """Announce the model's turn."""
        say("Model: ", end="")

    def answered(self, reply: Reply) -> None:
        """Announce length, speed and the state of drafting."""
        stats = reply.stats
        speculation = stats.speculation
        state = "with drafting" if speculation.state == "on" else "without drafting"
        reason = f": {speculation.shortest}" if speculation.shortest else ""
        if speculation.state == "unknown":  # neither is known
            state, reason = speculation.shortest or "speculation not reported", ""
        parts = ["1 token" if stats.emitted == 1 else f"{stats.emitted} tokens"]
        if stats.tokens_per_second:
            parts.append(f"{units.speed(stats.tokens_per_second)} tokens per second")
        parts.append(f"{state}{reason}{_ENDINGS[reply.finish_reason]}")
        say(f"({', '.join(parts)})")


def speaker() -> Silent:
    """The announcer for the standard streams."""
    terminal = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    return Announcer() if terminal else Silent()
