"""Conversations about pictures as the target reads them: tokens, rows, and what is to be learned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from demo import tokenizer as tok
from demo.copying import Quotes
from demo.corpus import HeldOut, conversations, docstring_sentences
from demo.phrase import Talk, ask
from demo.tokenizer import render
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from .scenes import pixels, scene
from .talks import NOTHING, WHAT, talk
from .tower import ROWS, SIDE

_HERE = "\ufdd2"
"""Stands for the picture."""
_BLIND = 0.03
"""Share of questions about a picture that is not there."""


@dataclass(frozen=True)
class Lessons:
    """B conversations, padded to T places."""

    tokens: Tensor
    """(B, T) int64; where rows stand, any."""
    rows: Tensor
    """(B, T) bool: where the rows of pictures stand."""
    targets: Tensor
    """(B, T) int64."""
    judged: Tensor
    """(B, T) bool: whether the target belongs to a reply."""
    seen: Tensor
    """(B', side, side, 3) uint8: the pictures of those that have one."""

    @property
    def blind(self) -> tuple[Tensor, Tensor]:
        """Tokens and judged places without the rows, as a draft model reads them."""
        kept = [~rows for rows in self.rows]
        pad = lambda values: pad_sequence([v[k] for v, k in zip(values, kept, strict=True)], True)  # noqa: E731
        return pad(self.tokens), pad(self.judged)


@dataclass(frozen=True)
class _Lesson:
    ids: list[int]
    rows: list[bool]
    judged: list[bool]


class Teacher:
    """Makes lessons without end."""

    def __init__(self, data: Path, rng: Random, own: float = 0.15, longest: int = 125) -> None:
        """``data`` has the vocabulary and what is held out; ``own``: share of the demo's own talks behind a picture; ``longest``: tokens and rows of
        a conversation.
        """
        self._coder, held = tok.load(data / "tokenizer.json"), HeldOut(data / "heldout.json")
        self._rng, self._share, self._longest = rng, own, longest
        quotes = Quotes(docstring_sentences())
        self._own = conversations(rng.getrandbits(30), held, quotes, chain=0.0)

    def lessons(self, number: int) -> Lessons:
        rng, found, seen = self._rng, list[_Lesson](), list[Tensor]()
        while len(found) < number:
            one, kind = scene(rng), rng.random()
            if kind < _BLIND:
                made = self._lesson([("user", ask(rng, rng.choice(WHAT))), ("assistant", NOTHING)])
            else:
                own = kind < _BLIND + self._share
                made = self._lesson(
                    self._with_picture(next(self._own)[1] if own else talk(one, rng))
                )
            if len(made.ids) > self._longest:
                continue
            found.append(made)
            if any(made.rows):
                seen.append(torch.tensor(pixels(one, rng, SIDE)))
        width = max(len(one.ids) for one in found)
        pad = lambda values: torch.tensor([[*v, *[0] * (width - len(v))] for v in values])  # noqa: E731
        ids, judged = pad([one.ids for one in found]), pad([one.judged for one in found]).bool()
        rows = pad([one.rows for one in found]).bool()
        return Lessons(ids[:, :-1], rows[:, :-1], ids[:, 1:], judged[:, 1:], torch.stack(seen))

    def _with_picture(self, said: Talk) -> Talk:
        """As users write it: before or behind what they ask, in a line of its own or not."""
        at = next(i for i, (role, _) in enumerate(said) if role == "user")
        gap = self._rng.choices(("\n", " ", "", None), (0.5, 0.25, 0.1, 0.15))[0]
        text = said[at][1]
        text = f"{text} {_HERE}" if gap is None else f"{_HERE}{gap}{text}"
        return [*said[:at], ("user", text), *said[at + 1 :]]

    def _lesson(self, said: Talk) -> _Lesson:
        ids, rows, judged = list[int](), list[bool](), list[bool]()
        for role, text in said:
            for i, part in enumerate(render([(role, text)]).split(_HERE)):
                if i:
                    ids, rows, judged = (
                        ids + [0] * ROWS,
                        rows + [True] * ROWS,
                        judged + [False] * ROWS,
                    )
                new = self._coder.encode(part).ids
                ids, rows = ids + new, rows + [False] * len(new)
                answer = [False] * len(new)
                if role == "assistant":
                    head = len(self._coder.encode(f"<|im_start|>{role}\n").ids)
                    # To the end of the turn; the line break behind it is never asked for.
                    answer[head:-1] = [True] * (len(new) - head - 1)
                judged = judged + answer
        return _Lesson(ids, rows, judged)
