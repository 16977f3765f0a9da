"""A reply repeated by plain decoding: whether the text is the same, and both speeds now."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass, field

from localspec.core.errors import LocalspecError, QueueFullError, UsageError
from localspec.core.events import Examination, Finished, Reply, Round, Token
from localspec.demo.speeds import RUNS, TOKENS, Speeds
from localspec.engine.port import Engine, ReplyHandle
from tui.render.text import plain
from tui.session.conversation import ChatTurn
from tui.session.recipes import ReplyRecipe


@dataclass(slots=True)
class ReplyComparison:
    """A drafted reply, the same reply without drafting as it arrives, then both speeds.

    The speed of the original reply is not used: it was measured at another time, perhaps on
    another day.
    """

    turn: ChatTurn
    recipe: ReplyRecipe
    tokens: list[Token] = field(default_factory=list)
    """Tokens of the plain reply so far."""
    plain: Reply | None = None
    """The finished plain reply."""
    divergence: int | None = None
    """Index of the first token that differs, once there is one."""
    examination: Examination | None = None
    """The plain reply's token at ``divergence`` against the drafted one."""
    unexamined: UsageError | QueueFullError | None = None
    """Why that place could not be examined."""
    speeds: Speeds = field(default_factory=Speeds)
    failure: LocalspecError | None = None
    handle: ReplyHandle | None = None
    """The request that runs now."""
    left: bool = False
    """Whether the user has closed the comparison; no further runs are needed."""
    over: bool = False
    """Whether the comparison has ended."""

    async def run(self, engine: Engine) -> None:
        """Make the plain reply, then the timed runs.

        Raises:
            LocalspecError: the engine failed.
        """
        recipe, drafted = self.recipe, self.recipe.reply.tokens
        timed = self.speeds.begin()
        handle = self.handle = engine.reply(recipe.request(draft=False))
        async for event in handle:
            match event:
                case Token():
                    self._add(event)
                case Round():
                    timed.add(event)
                    # A reply that was stopped is compared as far as it went.
                    if len(self.tokens) >= len(drafted) and self._was_stopped:
                        handle.interrupt()
                case Finished(reply):
                    self._finish(reply)
        if self.divergence is not None and self._both_have(self.divergence):
            assert self.plain is not None
            known = self.plain.tokens[: self.divergence + 1]
            request, rival = recipe.request(draft=True), drafted[self.divergence]
            try:
                self.examination = await engine.examine(request, known, rival)
            except (UsageError, QueueFullError) as error:  # the rest can be shown without it
                self.unexamined = error
        while not (self.left or self.speeds.complete):
            await self._time(engine)

    def stop(self) -> None:
        """End the request that runs now."""
        if self.handle is not None:
            self.handle.interrupt()

    async def _time(self, engine: Engine) -> None:
        """Make the beginning of the reply again to measure its speed."""
        recipe = self.recipe
        most = min(TOKENS, TOKENS if recipe.how.max_tokens is None else recipe.how.max_tokens)
        timed = self.speeds.begin()
        request = dataclasses.replace(
            recipe.request(draft=timed.draft),
            max_tokens=min(most, max(1, len(recipe.reply.tokens))),
        )
        self.handle = engine.reply(request)
        async for event in self.handle:
            if isinstance(event, Round):
                timed.add(event)

    @property
    def _was_stopped(self) -> bool:
        return self.recipe.reply.finish_reason == "interrupt"

    def _both_have(self, index: int) -> bool:
        return self.plain is not None and index < min(
            len(self.plain.tokens), len(self.recipe.reply.tokens)
        )

    def _add(self, token: Token) -> None:
        drafted, index = self.recipe.reply.tokens, len(self.tokens)
        self.tokens.append(token)
        if self.divergence is None and index < len(drafted) and drafted[index] != token.token:
            self.divergence = index

    def _finish(self, reply: Reply) -> None:
        self.plain = reply
        drafted = self.recipe.reply.tokens
        n, m = len(drafted), len(reply.tokens)
        stopped = (self._was_stopped and m > n) or (reply.finish_reason == "interrupt" and m < n)
        if self.divergence is None and n != m and not stopped:
            self.divergence = min(n, m)

    @property
    def same(self) -> int:
        """Number of equal tokens from the start."""
        if self.divergence is not None:
            return self.divergence
        return min(len(self.tokens), len(self.recipe.reply.tokens))

    def verdict(self, verifier: str) -> str:
        """The result so far, in a sentence or two."""
        if self.failure is not None:
            return f"the comparison failed: {self.failure}"
        whole = len(self.recipe.reply.tokens)
        if self.plain is None:
            return f"plain decoding: {len(self.tokens)} of {whole} tokens" + (
                f", the first {self.same} the same"
                if self.divergence is not None
                else ", all the same"
            )
        if self.divergence is None:
            stopped = self.same < whole
            same = f"the first {self.same}" if stopped else f"all {self.same}"
            return f"identical: {same} tokens{self._since} are the same{self._faster()}"
        since = self._since
        divergence = self._divergence(verifier)
        return (
            f"the first {self.divergence} tokens{since} are the same; {divergence}{self._faster()}"
        )

    @property
    def _since(self) -> str:
        return " since it was continued" if self.recipe.how.start else ""

    def _faster(self) -> str:
        if self.over and self.speeds.complete:
            return f"; {self.speeds.verdict()}"
        return f"; measuring speeds, run {len(self.speeds.runs)} of {RUNS}"

    def _divergence(self, verifier: str) -> str:
        found, why_not = self.examination, self.unexamined
        if self.divergence is None or (found is None and why_not is None):
            return "then one of the two ends and the other continues"
        at = self.recipe.how.start + self.divergence
        drafted = next(itertools.islice(self.turn.tokens, at, None), None)
        text = repr(plain(drafted.text)) if drafted else "another token"
        other = found.chosen.text if found is not None else self.tokens[self.divergence].text
        line = f"then drafting wrote {text} and plain decoding {plain(other)!r}"
        if verifier != "match" and self.recipe.how.sampling.temperature > 0:
            return f"{line}. The verifier {verifier} keeps the distribution, not the tokens"
        if found is None:
            return f"{line}; {why_not}"
        gap = "more than 32" if found.gap is None or found.gap > 32 else f"{found.gap:.2g}"
        return (
            f"{line}, {gap} logits apart. Passes of different widths differ in their last bits; "
            "`localspec verify` measures by how much here"
        )
