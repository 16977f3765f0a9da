"""The plain chat, in a terminal and in a pipe: its commands, and what it announces.

Announcements say whose turn it is, and how a reply ended. They are for screen readers and terminals
that cannot place a cursor: whole lines in their order, nothing drawn over, no colour. They go to
stderr, so that stdout has the replies only; a pipe gets only the answers to commands.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from localspec.chats.journal import Journal
from localspec.cli.output import in_terminal, say, say_block
from localspec.core import units
from localspec.core.errors import ChatsError, RemoteError, UsageError
from localspec.core.events import Reply
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.sampler_settings import TEMPERATURE
from localspec.core.sampling_params import Sampling
from localspec.core.settings_schema import SEED

_SHAPE = re.compile(r"/([a-z]+|\?)(?:\s+(.*))?$")
_HELP = """\
/help          these commands
/new           begin another chat{saved}
/system TEXT   set the system prompt; none removes it, no TEXT shows it
/image FILE    a picture in front of the next message
/schema FILE   replies as JSON that fits a schema; off for any text
/temp X        sampling temperature; 0 is greedy
/seed N        fixed seed; without N, a new one each time
/quit          leave
A space before the slash sends such a line to the model."""
_INSTEAD = {"set": "/temp X and /seed N set what can be set; other settings have flags"}
"""What to do in place of commands that the full chat has."""

_ENDINGS = {"stop": "", "length": ", stopped at the limit", "interrupt": ", stopped by you"}


class Leaving(Exception):  # noqa: N818 - nothing went wrong
    """The user ends the chat."""


@dataclass(slots=True)
class Talk:
    """Chat and settings of the next reply."""

    journal: Journal
    sampling: Sampling
    seed: int | None
    grammar: GrammarSpec | None = None
    """The grammar of the next replies."""
    images: list[str] = field(default_factory=list)
    """References to pictures in front of the next message."""

    @contextlib.contextmanager
    def saying(self, text: str) -> Iterator[str]:
        """A message with the pictures that were put in front of it. Where the server is gone before
        a reply to it begins, they are in front of the next one; what cannot be sent is not.
        """
        before, images = self.journal.so_far, [*self.images]
        self.images.clear()
        try:
            yield "\n".join([*images, text])
        except RemoteError:
            if self.journal.so_far == before:
                self.images += images
            raise

    def obey(self, line: str) -> str | None:
        """Run the command in ``line`` and return its answer; None if it is a message to the model.

        Raises:
            Leaving: the command ends the chat.
            UsageError: there is no such command, or not with that argument.
        """
        found = _SHAPE.match(line)
        if found is None:
            return None
        commands: dict[str, Callable[[str], str]] = {
            **dict.fromkeys(("help", "?"), self._help),
            "new": self._new,
            "clear": self._new,
            "system": self._system,
            "image": self._image,
            "schema": self._schema,
            "temp": self._temperature,
            "seed": self._seed,
            **dict.fromkeys(("quit", "exit", "bye"), self._leave),
        }
        if found[1] not in commands:
            why = _INSTEAD.get(found[1], "/help lists the commands")
            raise UsageError(f"there is no /{found[1]} here; {why}")
        return commands[found[1]]((found[2] or "").strip())

    def _help(self, _: str) -> str:
        return _HELP.format(saved="; this one is saved" if self.journal.saves else "")

    def _new(self, _: str) -> str:
        self.journal.renew()
        self.images.clear()
        return "a new chat"

    def _system(self, text: str) -> str:
        if text:
            self.journal.system = None if text == "none" else text
        system = self.journal.system
        return "no system prompt" if system is None else f"system prompt: {system}"

    def _image(self, path: str) -> str:
        from localspec.chats import pictures
        from localspec.cli.images import read_images

        if not path:
            raise UsageError("/image needs a file")
        (picture,) = read_images([path], pipes=False)
        name = Path(path).name
        try:
            self.images.append(pictures.keep(picture.data, name))
        except ChatsError as error:
            raise UsageError(str(error)) from None
        return f"picture {name}, in front of the next message"

    def _schema(self, text: str) -> str:
        from localspec.grammar import reading

        if not text:
            raise UsageError("/schema needs a file, or off")
        self.grammar = None if text == "off" else reading.schema(text, pipes=False)
        return "any text from the next reply on" if text == "off" else f"replies fit {text}"

    def _temperature(self, text: str) -> str:
        temperature = TEMPERATURE.parse(text)
        assert isinstance(temperature, float)
        self.sampling = replace(self.sampling, temperature=temperature)
        return f"temperature {temperature:g} from the next reply on"

    def _seed(self, text: str) -> str:
        seed = SEED.parse(text) if text else None
        self.seed = None if seed is None else int(seed)
        return "a new seed each time" if self.seed is None else f"seed {self.seed} from now on"

    def _leave(self, _: str) -> str:
        raise Leaving


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
        say_block(answer or "")
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
    return Announcer() if in_terminal() else Silent()
