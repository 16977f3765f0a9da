"""Time to the first token with a cold and a warm prefix cache, and after a restart.

A chat with a long first message is read cold, continued, continued after a reply that the next
prompt does not quote (as templates drop thoughts), left for another chat and continued again, and
continued by a second process image: the model is loaded anew and the state comes from disk.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localspec import Finished, Message, Options, Runtime, Sampling, Token
from localspec.core.errors import LocalspecError

_GREEDY = Sampling(temperature=0.0)
_WORDS = (
    "Once upon a time there was a small fox who lived near a river and liked to count the boats. "
)


@dataclass(frozen=True)
class Row:
    """One request."""

    what: str
    first_token: float
    """Seconds from the request to the first token."""
    prompt: int
    cached: int
    saved: float

    def line(self) -> str:
        """A row of the table."""
        return (
            f"{self.what:34} {self.first_token:8.2f} s {self.prompt:7} {self.cached:7} "
            f"{self.saved:8.2f} s"
        )


class Chats:
    """Asks a runtime, and notes how long the first token took."""

    def __init__(self, runtime: Runtime, most: int) -> None:
        self._runtime = runtime
        self._most = most

    def ask(self, what: str, messages: list[Message]) -> tuple[Row, str]:
        """A row, and the text of the reply."""
        start, first = time.perf_counter(), 0.0
        for event in self._runtime.reply(messages, sampling=_GREEDY, seed=1, max_tokens=self._most):
            if isinstance(event, Token) and not first:
                first = time.perf_counter() - start
        assert isinstance(event, Finished)
        stats = event.reply.stats
        row = Row(what, first, stats.prompt_tokens, stats.cached_tokens, stats.saved_seconds)
        return row, event.reply.text or "."


def rows(options: Options, tokens: int, most: int) -> Iterator[Row]:
    """All of them, in order."""
    with Runtime.open(options) as runtime:
        runtime.keep_states()
        chats = Chats(runtime, most)
        per_word = len(runtime.encode([Message("user", _WORDS * 8)])) / 8
        text = _WORDS * max(1, round(tokens / per_word))
        chat = [Message("user", text)]
        row, said = chats.ask("cold", chat)
        yield row
        chat += [Message("assistant", said), Message("user", "And then?")]
        row, said = chats.ask("next turn", chat)
        yield row
        dropped = [*chat, Message("assistant", "Briefly."), Message("user", "Go on.")]
        row, _ = chats.ask("next turn, reply not quoted", dropped)
        yield row
        other = [Message("user", "Another story, please. " + text[: len(text) // 2])]
        row, _ = chats.ask("another chat, cold", other)
        yield row
        back = [*chat, Message("assistant", said), Message("user", "What about the boats?")]
        row, _ = chats.ask("back in the first chat", back)
        yield row
        runtime.rest()
    with Runtime.open(options) as runtime:
        runtime.keep_states()
        row, _ = Chats(runtime, most).ask("after a restart", [*back[:-1], Message("user", "Yes?")])
        yield row


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", help="as the commands take it")
    parser.add_argument("--draft", help="draft model, or none")
    parser.add_argument("--drafter", help="drafters by preference, or off")
    parser.add_argument("--tokens", type=int, default=1000, help="length of the first message")
    parser.add_argument("-n", type=int, default=16, help="tokens of a reply")
    parser.add_argument("--ctx", type=int, help="context size")
    parser.add_argument("--threads", type=int, help="CPU threads")
    parser.add_argument("--cache-memory", type=int, help="as the setting, in MB")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        # States of this run alone; measured costs and models stay where they are.
        os.environ["LOCALSPEC_HOME"] = str(Path(home))
        try:
            options = Options(
                given.model,
                given.draft,
                context=given.ctx,
                threads=given.threads,
                drafter=tuple(given.drafter.split(",")) if given.drafter else None,
                cache_memory=given.cache_memory,
            )
            print(f"{'':34} {'1st token':>10} {'prompt':>7} {'cached':>7} {'saved':>10}")
            for row in rows(options, given.tokens, given.n):
                print(row.line(), flush=True)
        except LocalspecError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
