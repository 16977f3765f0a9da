"""What a person hears of a chat in lines: who speaks, and how a reply went.

For screen readers and terminals that cannot place a cursor: whole lines in their order, nothing
drawn over, no colour. It goes to stderr, so that replies alone stand on stdout; a pipe hears
nothing.
"""

from __future__ import annotations

import sys

from localspec.cli.line_commands import Talk
from localspec.cli.output import say
from localspec.core.events import Reply

_ENDINGS = {"stop": "", "length": ", stopped at the limit", "interrupt": ", stopped by you"}


class Silent:
    """Says nothing: nobody is there."""

    def welcome(self, so_far: tuple[str, int] | None = None) -> None:
        """Before the first message; ``so_far`` is title and length of a chat that goes on."""

    def asks(self) -> None:
        """A message is waited for."""

    def leaves(self) -> None:
        """No more messages come."""

    def obeys(self, line: str, talk: Talk) -> bool:
        """Whether a line was a command, which has been done now. See `Talk.obey` for errors."""
        del line, talk
        return False

    def answers(self) -> None:
        """A reply begins."""

    def answered(self, reply: Reply) -> None:
        """It has ended."""


class Spoken(Silent):
    """Names who speaks, and says in words how a reply went."""

    def welcome(self, so_far: tuple[str, int] | None = None) -> None:
        """How to use it, and where one is."""
        say("Type a message and press Enter. /help lists commands, /quit leaves.")
        if so_far is not None:
            title, count = so_far
            messages = "1 message" if count == 1 else f"{count} messages"
            say(f"Going on with {title}, {messages} so far.")

    def asks(self) -> None:
        """The person's turn."""
        say("You: ", end="")

    def leaves(self) -> None:
        """The line that was begun for the person ends."""
        say()

    def obeys(self, line: str, talk: Talk) -> bool:
        """Say what the command did."""
        told = talk.obey(line)
        for part in told.splitlines() if told is not None else ():
            say(part)
        return told is not None

    def answers(self) -> None:
        """The model's turn."""
        say("Model: ", end="")

    def answered(self, reply: Reply) -> None:
        """Its length and speed, and whether drafting happens."""
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
    """The one for this terminal, or for none."""
    person = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    return Spoken() if person else Silent()
