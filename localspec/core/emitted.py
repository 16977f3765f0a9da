"""What is told of a token: where it came from, and log-probabilities, also of those of a prompt.

Without numpy: an interface starts sooner that way.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

LogprobsMode = Literal["raw", "processed"]
"""``raw``: log-softmax of the target's logits as they are. ``processed``: log of p, after the
grammar's mask, bias, penalties, truncation and temperature; at temperature 0 one token has 0."""

MOST_ALTERNATIVES = 20
"""Most top alternatives that a request may ask for."""

GRAMMAR = "grammar"
"""Source of tokens that a grammar forced, and name of the drafter that drafts nothing else."""
SERVER = "server"
"""Source of tokens that a server drafted: it does not name its drafter."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token and its log-probability at one place."""

    token: int
    text: str
    """The whole token; control tokens by their name. Bytes that are not UTF-8 by themselves, parts
    of a character, are lone surrogates (PEP 383)."""
    logprob: float
    """Natural logarithm; -inf where the token is impossible."""

    @property
    def bytes(self) -> bytes:
        """The bytes of the token."""
        return self.text.encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """One place: the token there, and the likeliest ones."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...] = ()
    """The likeliest tokens, best first, as many as the request asked for; the chosen one need not
    be among them. ``processed`` has only tokens that are possible."""


@dataclass(frozen=True, slots=True)
class PromptScored:
    """Log-probabilities of the tokens of a part of the prompt, each given all before it.

    A prompt has one such event for each part that was read, in their order, before the first token
    of the reply.
    """

    start: int
    """Place of the first of the tokens in the prompt."""
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs | None, ...]
    """One for each of the tokens; None for the first of the prompt, which nothing precedes."""


class Origin(enum.StrEnum):
    """Where an emitted token came from."""

    ACCEPTED = "accepted"
    """Drafted, and the target agreed."""
    CORRECTED = "corrected"
    """The target's replacement at the first miss."""
    BONUS = "bonus"
    """The target's extra token after every drafted one was accepted."""
    PLAIN = "plain"
    """Nothing was drafted in this round."""
    UNKNOWN = "unknown"
    """A server does not tell."""
