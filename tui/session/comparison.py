"""A reply made once more by plain decoding: whether the text is the same, and both speeds now."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from localspec.core.events import Examination, Finished, Reply, Round, Token
from localspec.errors import LocalspecError
from tui.render.block_splitter import plain
from tui.session.conversation import Made, Turn
from tui.session.ports import Answers
from tui.session.speeds import RUNS, TOKENS, Speeds


async def examine(
    engine: Answers, made: Made, tokens: Sequence[int], rival: int | None = None
) -> Examination:
    """Look at the place of the last of ``tokens`` in a reply that began so."""
    return await engine.examine(made.request(draft=True), tokens, rival)


@dataclass(slots=True)
class Comparison:
    """One reply with drafting and, as it comes, the same without; then both speeds.

    The speed that the reply once had is not used: it was measured at another time, perhaps on
    another day.
    """

    turn: Turn
    made: Made
    tokens: list[Token] = field(default_factory=list)
    """Of the plain reply so far."""
    plain: Reply | None = None
    """The plain reply once it is whole."""
    parted: int | None = None
    """Index of the first token that differs, once one does."""
    examination: Examination | None = None
    """Of the plain reply's token in that place, against the drafted one."""
    speeds: Speeds = field(default_factory=Speeds)
    failure: LocalspecError | None = None
    left: bool = False
    """Whether the user has closed the comparison: nothing more is to be made."""
    over: bool = False
    """Whether nothing more will come."""

    async def run(self, engine: Answers) -> None:
        """Make it.

        Raises:
            LocalspecError: the engine failed.
        """
        made, drafted = self.made, self.made.reply.tokens
        timed = self.speeds.begin()
        async for event in engine.submit(made.request(draft=False)):
            match event:
                case Token():
                    self._add(event)
                case Round():
                    timed.add(event)
                    # A reply that was stopped is compared as far as it went.
                    if len(self.tokens) >= len(drafted) and self._was_stopped:
                        engine.interrupt()
                case Finished(reply):
                    self._finish(reply)
        if self.parted is not None and self._both_have(self.parted):
            assert self.plain is not None
            known = self.plain.tokens[: self.parted + 1]
            self.examination = await examine(engine, made, known, drafted[self.parted])
        while not (self.left or self.speeds.complete):
            await self._time(engine)

    async def _time(self, engine: Answers) -> None:
        """Make the beginning of the reply again, only to time it."""
        made = self.made
        most = TOKENS if made.max_tokens is None else min(TOKENS, made.max_tokens)
        timed = self.speeds.begin()
        request = dataclasses.replace(
            made.request(draft=timed.draft),
            max_tokens=min(most, max(1, len(made.reply.tokens))),
        )
        async for event in engine.submit(request):
            if isinstance(event, Round):
                timed.add(event)

    @property
    def _was_stopped(self) -> bool:
        return self.made.reply.finish_reason == "interrupt"

    def _both_have(self, index: int) -> bool:
        return self.plain is not None and index < min(
            len(self.plain.tokens), len(self.made.reply.tokens)
        )

    def _add(self, token: Token) -> None:
        drafted, index = self.made.reply.tokens, len(self.tokens)
        self.tokens.append(token)
        if self.parted is None and index < len(drafted) and drafted[index] != token.token:
            self.parted = index

    def _finish(self, reply: Reply) -> None:
        self.plain = reply
        drafted = self.made.reply.tokens
        n, m = len(drafted), len(reply.tokens)
        stopped = (self._was_stopped and m > n) or (reply.finish_reason == "interrupt" and m < n)
        if self.parted is None and n != m and not stopped:
            self.parted = min(n, m)

    @property
    def same(self) -> int:
        """Tokens that are the same from the start."""
        if self.parted is not None:
            return self.parted
        return min(len(self.tokens), len(self.made.reply.tokens))

    def verdict(self, verifier: str) -> str:
        """What came of it so far, in a sentence or two."""
        if self.failure is not None:
            return f"the comparison failed: {self.failure}"
        whole = len(self.made.reply.tokens)
        if self.plain is None:
            return f"plain decoding: {len(self.tokens)} of {whole} tokens" + (
                f", the first {self.same} the same" if self.parted is not None else ", all the same"
            )
        if self.parted is None:
            stopped = self.same < whole
            same = f"the first {self.same}" if stopped else f"all {self.same}"
            return f"identical: {same} tokens{self._since} are the same{self._faster()}"
        since = self._since
        parting = self._parting(verifier)
        return f"the first {self.parted} tokens{since} are the same; {parting}{self._faster()}"

    @property
    def _since(self) -> str:
        return " since it went on" if self.made.start else ""

    def _faster(self) -> str:
        if self.over and self.speeds.complete:
            return f"; {self.speeds.verdict()}"
        return f"; measuring speeds, run {len(self.speeds.runs)} of {RUNS}"

    def _parting(self, verifier: str) -> str:
        found = self.examination
        if found is None or self.parted is None:
            return "then one of the two ends and the other goes on"
        at = self.made.start + self.parted
        drafted = next(itertools.islice(self.turn.tokens, at, None), None)
        text = repr(plain(drafted.text)) if drafted else "another token"
        line = f"then drafting wrote {text} and plain decoding {plain(found.chosen.text)!r}"
        if verifier != "match" and self.made.sampling.temperature > 0:
            return f"{line}. The verifier {verifier} keeps the distribution, not the tokens"
        gap = "more than 32" if found.gap is None or found.gap > 32 else f"{found.gap:.2g}"
        return (
            f"{line}, {gap} logits apart. Passes of different widths differ in their last bits; "
            "`localspec verify` measures by how much here"
        )
