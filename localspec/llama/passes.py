"""Passes as rounds make them, timed: of which tokens, after which other passes.

A pass over the same token n times costs a model with experts hardly more than one over a single
token: all of them go to the same experts. The tokens of a draft differ. And a pass of the same
width as the one before it finds a graph ready, which passes of drafts of changing lengths do not.
"""

from __future__ import annotations

import itertools
import time

from localspec.llama.context import Context
from localspec.llama.library import c_api
from localspec.llama.model import Model

_TEXT = (
    "The town lies between two rivers, and most of its houses are older than the bridge. Every "
    "morning the market opens at six: farmers bring apples, bread, cheese and flowers, children "
    "walk to school, and the first train leaves for the coast. A letter that was posted on Monday "
    "should arrive before Thursday, unless snow has closed the road. def total(values, start=0): "
    "return sum(values) + start. To repair a bicycle, first turn it over, then check whether the "
    "chain moves freely; if not, clean it with a dry cloth. In 1987 about 40 people worked here, "
    "today there are nearly three hundred. Could you explain why water boils sooner on mountains?"
)
_STRIDE = 7919
"""Prime, so that steps of it visit all of a vocabulary before any token comes again."""
_LONG_S = 0.05
"""Seconds of a pass on the processor from which on the time to build its graph does not matter."""
_DISTINCT = 199
"""Tokens that passes are made of; prime, so that each pass has others than the one before."""
_RUN_ON_DEVICE = 3
"""Equal passes before the one that is counted: CUDA captures a graph at the second one."""


def ordinary_tokens(model: Model, n: int) -> list[int]:
    """``n`` tokens that have a text, all distinct where the vocabulary has ``n`` of them.

    Those of a short English text come first, then others from all over the vocabulary.
    """
    spelled = model.vocab_type != c_api.LLAMA_VOCAB_TYPE_NONE  # some heads have no vocabulary
    known = max(1, model.n_vocab)
    step = _STRIDE if known % _STRIDE else 1
    text = model.tokenize(_TEXT) if spelled else []
    found: dict[int, None] = {}
    for token in itertools.chain(text, (i * step % known for i in range(1, known + 1))):
        if len(found) == n:
            break
        if not spelled or model.piece(token):  # a control token has no text
            found[token] = None
    tokens = list(found) or [0]
    return [tokens[i % len(tokens)] for i in range(n)]


class Passes:
    """Times passes of a context as rounds make them, appended to sequence 0 and removed again.

    Their tokens are distinct, and others every time. A pass over several tokens follows one of
    another width, as lengths of drafts change; passes over one token come in runs, as plain
    decoding makes them. What llama.cpp keeps from one pass for the next of equal width (graphs,
    captured ones on CUDA) is then there as often as in a reply.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._start = context.length(0)
        self._tokens = ordinary_tokens(context.model, _DISTINCT)
        self._at = 0
        self._met: set[int] = set()
        """Widths that had their first pass."""
        self._on_device = context.model.gpu_layers > 0
        self._long: set[int] = set()
        """Widths that take so long that the time to build a graph does not matter."""

    def seconds(self, width: int) -> float:
        """Seconds of a pass over ``width`` tokens, with as many rows of logits as a pass may have.

        The first pass of a width builds graphs, and on a device it compiles and loads kernels: it
        is not counted, save where it takes so long on the processor that a graph makes no
        difference.
        """
        if width not in self._met:
            self._met.add(width)
            first = self._pass(width)
            if first > _LONG_S and not self._on_device:
                self._long.add(width)
            if width > 1:
                if width in self._long:
                    return first
                self._pass(1)
        if width == 1 and width not in self._long:
            for _ in range(_RUN_ON_DEVICE if self._on_device else 1):
                self._pass(1)
        return self._pass(width)

    def _pass(self, width: int) -> float:
        tokens = [self._tokens[(self._at + i) % _DISTINCT] for i in range(width)]
        self._at += width
        rows = min(width, self._context.outputs)
        began = time.perf_counter()
        self._context.forward([(0, tokens, rows)])
        seconds = time.perf_counter() - began
        self._context.truncate(0, self._start)
        return seconds
