"""Exactness of a remote engine, from outside: what `localspec verify --url` does.

Speculation must not change greedy replies. Two ways to see that:

*scored*: the tokens of a reply are given back as a prompt, and the engine scores all of them in one
request (``prompt_logprobs``). Each must be the likeliest one. No second engine is needed; one that
leaves a token without a score, or without a rival, does not tell. The same token is scored by two
passes, of the reply and of the prompt; the largest difference of the two is the noise of passes of
different widths on that machine.

*equal*: the reply is compared with that of a plain server of the same model, token for token and
then by its text, reasoning included; by text alone where a server tells no tokens. Where they
differ, the plain server's log-probabilities tell how far apart the two tokens were.

A difference is a near-tie if the noise can bridge it; a server that does not tell its noise is
taken to have `USUAL_NOISE`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from localspec.core.errors import RemoteError, UsageError
from localspec.core.events import SAFETY
from localspec.remote.blocking import BlockingClient
from localspec.remote.client import RemoteClient
from localspec.remote.scores import GreedyReply, Place, Score, greedy, prompt_ids, scored

Way = Literal["scored", "equal"]
USUAL_NOISE = 0.25
"""Logits: differences of passes of different widths on processors, see docs/exactness.md."""
_LARGEST_NOISE = 0.5
"""Logits: beyond this, two passes do not differ by rounding."""
_FAR = 1e9
_END = 1
"""Tokens that one server may list and the other not, behind equal ones: that of the reply's end."""


@dataclass(frozen=True, slots=True)
class RemoteDivergence:
    """A token that greedy decoding would not have chosen."""

    prompt: str
    position: int
    """Index in the reply."""
    emitted: str
    expected: str
    gap: float
    """Difference of the two in log-probability, which is that of their logits; less than 0 where
    the plain server itself did not choose its likeliest token."""
    near_tie: bool = False


@dataclass(frozen=True, slots=True)
class RemoteVerification:
    """The result so far."""

    way: Way
    replies: int
    """Replies of which something was compared."""
    identical: int
    """Replies without a divergence."""
    by_text: int
    """Replies of which only the text was compared."""
    empty: int
    """Further replies without a text or a token on either server."""
    tokens: int
    """Tokens that were compared."""
    drafted: int | None
    accepted: int | None
    """Drafted tokens that were accepted; None, as ``drafted``, where the server does not tell."""
    noise: float | None
    """The largest difference of a token's log-probability between two passes, of tokens that are
    the likeliest ones; None: not told."""
    divergences: tuple[RemoteDivergence, ...]

    @property
    def exact(self) -> bool:
        """Whether every divergence is a near-tie."""
        return all(d.near_tie for d in self.divergences)


class RemoteComparing:
    """A check of a remote engine that goes on prompt by prompt."""

    def __init__(
        self,
        engine: BlockingClient[RemoteClient],
        prompts: Sequence[str],
        *,
        max_tokens: int,
        plain: BlockingClient[RemoteClient] | None = None,
    ) -> None:
        """With ``plain``, replies are compared with that server's."""
        self._engine, self._plain = engine, plain
        self._prompts = prompts
        self._max_tokens = max_tokens
        self._noise: float | None = None
        self._found: list[RemoteDivergence] = []
        self._replies = self._identical = self._by_text = self._empty = self._tokens = 0
        self._drafted: int | None = 0
        self._accepted: int | None = 0

    @property
    def way(self) -> Way:
        """How the replies are checked."""
        return "scored" if self._plain is None else "equal"

    def steps(self) -> Iterator[RemoteVerification]:
        """Check; the result after each prompt.

        Raises:
            UsageError: the engine offers no scores, and there is no plain server.
            LocalspecError: a server refuses, or there was nothing to compare.
        """
        for prompt in self._prompts:
            before = len(self._found)
            reply = self._engine.call(greedy(self._engine.client, prompt, self._max_tokens))
            if self._plain is None:
                tokens = self._score(prompt, reply)
            else:
                other = self._plain.call(greedy(self._plain.client, prompt, self._max_tokens))
                tokens = self._compare(prompt, reply, other)
            same = len(self._found) == before
            if same and not tokens and not reply.text:
                self._empty += 1
            else:
                self._replies += 1
                self._identical += same
                self._by_text += not tokens
            self._tokens += tokens
            self._drafted = _sum(self._drafted, reply.drafted)
            self._accepted = _sum(self._accepted, reply.accepted)
            yield self.so_far()
        if not self._replies:
            address = self._engine.client.connection.address
            raise RemoteError(f"{address} and the plain server answered nothing: nothing compared")

    def so_far(self) -> RemoteVerification:
        """The result of all steps until now; divergences are judged by all noise seen."""
        noise = USUAL_NOISE if self._noise is None else self._noise
        bridged = SAFETY * min(noise, _LARGEST_NOISE)
        return RemoteVerification(
            self.way,
            self._replies,
            self._identical,
            self._by_text,
            self._empty,
            self._tokens,
            self._drafted,
            self._accepted,
            self._noise,
            tuple(dataclasses.replace(d, near_tie=abs(d.gap) <= bridged) for d in self._found),
        )

    def _score(self, prompt: str, reply: GreedyReply) -> int:
        """Have the engine score its own reply; returns its tokens, all of them scored."""
        client = self._engine.client
        before = reply.prompt_ids
        if reply.ids and not before:
            before = self._engine.call(prompt_ids(client, prompt))
        if not reply.ids or not before:
            raise _not_offered(client)
        places = self._engine.call(scored(client, before + reply.ids))[len(before) :]
        known = [score for score in places if score is not None]
        if not places or len(known) < max(len(reply.ids), len(reply.places)):
            raise _not_offered(client)
        for position, score in enumerate(known):
            self._judge(prompt, reply, position, score)
        return len(known)

    def _judge(self, prompt: str, reply: GreedyReply, position: int, score: Score) -> None:
        id = reply.ids[position]  # noqa: A001
        place = reply.places[position] if position < len(reply.places) else None
        if score.best == id:
            if place is not None and place.logprob is not None:
                self._noise = max(self._noise or 0.0, abs(place.logprob - score.logprob))
        else:
            emitted = f"token {id}" if place is None else repr(place.token)
            gap = score.best_logprob - score.logprob
            self._found.append(
                RemoteDivergence(prompt, position, emitted, f"token {score.best}", gap)
            )

    def _compare(self, prompt: str, reply: GreedyReply, plain: GreedyReply) -> int:
        """Compare with the plain server's reply, up to the first difference; returns the tokens
        compared.
        """
        pairs = [*zip(reply.places, plain.places, strict=False)]
        known = bool(reply.ids and plain.ids)  # of one model
        for position, (one, other) in enumerate(pairs):
            same = (
                not known
                or reply.ids[position : position + 1] == plain.ids[position : position + 1]
            )
            if one.token != other.token or not same:
                gap = _gap(one, other)
                found = RemoteDivergence(prompt, position, repr(one.token), repr(other.token), gap)
                self._found.append(found)
                return position + 1
        further = abs(len(reply.places) - len(plain.places)) if pairs else 0
        if reply.text != plain.text or further > _END:
            found = RemoteDivergence(prompt, len(pairs), "another text", "", _FAR)
            self._found.append(found)
        return sum(one.token != "" for one, _ in pairs)


def _gap(one: Place, plain: Place) -> float:
    """How much likelier the plain server's token was than the other one, by its own pass.

    Where the two have the same text, the lists do not tell the other one: it has what that token
    left at most, and the passes of both are as far apart as the two were likely.
    """
    best = plain.logprob if plain.logprob is not None else plain.top.get(plain.token)
    alike = one.token == plain.token
    rival = one.logprob if alike else plain.top.get(one.token)
    if best is None or rival is None:
        return _FAR
    if not alike:
        return best - rival
    left = -math.expm1(best)
    return max(best - math.log(left), abs(best - rival)) if left > 0 else _FAR


def _sum(so_far: int | None, one: int | None) -> int | None:
    """A sum, which is unknown if one of its parts is."""
    return None if so_far is None or one is None else so_far + one


def _not_offered(client: RemoteClient) -> UsageError:
    name = client.found.dialect.name if client.found is not None else "this server"
    return UsageError(
        f"{name} does not score all tokens that it is given; name a server of the same model "
        "without speculation with --plain-url"
    )
