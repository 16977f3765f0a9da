"""The commands of a plain chat, in a terminal and in a pipe."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from localspec.chats.journal import Journal
from localspec.core.errors import ChatsError, RemoteError, UsageError
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.sampling_params import Sampling

_SHAPE = re.compile(r"/([a-z]+)(?:\s+(.*))?$")
_HELP = """\
/help          these commands
/new           begin another chat; this one is saved
/system TEXT   set the system prompt; none removes it, no TEXT shows it
/image FILE    a picture in front of the next message
/schema FILE   replies as JSON that fits a schema; off for any text
/temp X        sampling temperature; 0 is greedy
/seed N        fixed seed; without N, a new one each time
/quit          leave
A space before the slash sends such a line to the model."""


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
            "help": lambda _: _HELP,
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
            raise UsageError(f"there is no /{found[1]} here; /help lists the commands")
        return commands[found[1]]((found[2] or "").strip())

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
        (picture,) = read_images([path])
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
        self.grammar = None if text == "off" else reading.schema(text)
        return "any text from the next reply on" if text == "off" else f"replies fit {text}"

    def _temperature(self, text: str) -> str:
        try:
            self.sampling = replace(self.sampling, temperature=float(text))
        except ValueError:
            raise UsageError("/temp needs a number, as in /temp 0.8") from None
        return f"temperature {self.sampling.temperature:g} from the next reply on"

    def _seed(self, text: str) -> str:
        if not re.fullmatch(r"\d{0,18}", text):
            raise UsageError("/seed needs a whole number, or nothing for a new seed each time")
        self.seed = int(text) if text else None
        return f"seed {text} from now on" if text else "a new seed each time"

    def _leave(self, _: str) -> str:
        raise Leaving
