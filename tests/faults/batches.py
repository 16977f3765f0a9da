"""Several requests at once on tables: they join, leave, fail and are interrupted, and each gets
what a decoder written from the papers gives it alone (`faults.by_the_papers`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import tables

from faults.by_the_papers import NoTokenError, Plain
from faults.guests import (
    KINDS,
    METHODS,
    USUAL,
    Extras,
    Wish,
    drafter_of,
    rows_together,
    spoilt,
    wish,
)
from faults.runner import Search
from faults.settings import Chance, simpler
from localspec.core.emitted import TokenLogprobs
from localspec.core.values import Emitted
from localspec.decode.request import Request
from localspec.decode.round import decode_round, empty
from localspec.drafters.base import Committed
from localspec.drafters.cascade import Cascade
from localspec.policy import Policy
from localspec.testing import TableTarget

_NEAR = 1e-4
"""Largest error of a log-probability: it is computed with 32 bits."""


@dataclass(frozen=True)
class Case:
    """Requests, and where they run."""

    seed: int
    v: int
    sharpness: float
    likeness: float
    drafters: tuple[str, ...]
    nodes: int
    leaves: int
    sequences: int
    capacity: int
    spoilt: tuple[int, int] | None
    """Two tokens after which the target says what is no number."""
    together: int
    """Rows of a chain that are processed at once."""
    wishes: tuple[Wish, ...]


@dataclass
class _Guest:
    """A request that runs, and what its reader has."""

    wish: Wish
    request: Request
    plain: Plain
    right: tuple[list[int], str]
    """Its tokens by the papers, and why they end."""
    given: list[Emitted] = field(default_factory=list)
    rounds: int = 0
    deepest: int = 0
    """The longest path of its drafts."""


class Batches(Search):
    """Every reader gets the tokens of plain decoding, as far as the reply goes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._tokens = self._accepted = self._failed = self._interrupted = 0

    def case(self, seed: int) -> Case:
        rng = random.Random(seed)
        v = rng.choice([3, 8, 20, 31])
        return Case(
            seed,
            v,
            rng.choice([0.5, 1.5, 4.0]),
            rng.choice([0.0, 0.2, 1.0]),
            tuple(rng.sample(KINDS, rng.choice([1, 1, 2, 3]))),
            rng.choice([1, 4, 12, 62]),
            rng.choice([1, 2, 5]),
            rng.choice([1, 2, 4, 8]),
            rng.choice([30, 10_000, 10_000, 10_000]),
            rng.choice([None, None, None, (rng.randrange(v), rng.randrange(v))]),
            rng.choice([1, 1, 1, 1, 1, 1, 1, 2]),
            _wishes(rng, v, 1000 * seed),
        )

    def wrong(self, case: Case) -> str | None:
        table = tables.random_table(case.seed, case.v, case.sharpness)
        other = tables.random_table(case.seed + 1, case.v, case.sharpness)
        target = TableTarget(spoilt(table, case.spoilt), case.capacity, sequences=case.sequences)
        draft = tables.blend(table, other, case.likeness)
        drafter = Cascade([drafter_of(kind, draft) for kind in case.drafters])
        with rows_together(case.together):
            guests = _House(case, target, drafter).guests()
        for guest in guests:
            self._tokens += len(guest.given)
            self._accepted += guest.request.tally.accepted
            self._failed += guest.request.error is not None
            self._interrupted += guest.request.finish == "interrupt"
            found = _wrong(guest)
            if found is not None:
                return f"{found}; {guest.wish}"
        return None

    def smaller(self, case: Case) -> Iterator[Case]:
        for i in range(len(case.wishes)):
            if len(case.wishes) > 1:
                yield replace(case, wishes=(*case.wishes[:i], *case.wishes[i + 1 :]))
        for kind in case.drafters if len(case.drafters) > 1 else ():
            yield replace(case, drafters=(kind,))
        if case.together > 1:
            yield replace(case, together=1)
        if case.sequences > 1:
            yield replace(case, sequences=case.sequences // 2)
        if case.nodes > 1:
            yield replace(case, nodes=case.nodes // 2)
        for i, one in enumerate(case.wishes):
            extras = (
                replace(one.extras, **{f.name: getattr(USUAL, f.name)}) for f in fields(USUAL)
            )
            for less in (
                replace(one, defect=None),
                replace(one, rule=None),
                replace(one, rounds=None),
                *(replace(one, extras=fewer) for fewer in (USUAL, *extras)),
                *(replace(one, sampling=s) for s in simpler(one.sampling)),
            ):
                if less != one:
                    yield replace(case, wishes=(*case.wishes[:i], less, *case.wishes[i + 1 :]))

    def figures(self) -> Iterator[str]:
        yield (
            f"{self._tokens} tokens, {self._accepted} drafted ones accepted, "
            f"{self._failed} requests that failed, {self._interrupted} interrupted"
        )


class _House:
    """Runs the requests of a case: some wait, and any of them may join before any round."""

    def __init__(self, case: Case, target: TableTarget, drafter: Cascade) -> None:
        self._case, self._target, self._drafter = case, target, drafter
        self._rng = random.Random(case.seed)
        self._running: list[_Guest] = []

    def guests(self) -> list[_Guest]:
        """All of them, when they are over."""
        case, shared = self._case, Chance(self._case.seed, self._case.nodes, self._case.leaves)
        waiting, found = [*case.wishes], list[_Guest]()
        while waiting or self._running:
            free = set(range(case.sequences)) - {g.request.seq for g in self._running}
            while waiting and free and (not self._running or self._rng.random() < 0.6):
                seq = self._rng.choice(sorted(free))
                free.discard(seq)
                self._running.append(self._begun(waiting.pop(0), seq))
                found.append(self._running[-1])
            self._round(shared)
        return found

    def _begun(self, one: Wish, seq: int) -> _Guest:
        case = self._case
        policy = Chance(one.seed, case.nodes, case.leaves) if one.own else None
        plain = one.plain(self._target.table, case.v, case.capacity)
        right = plain.reply()
        request = one.request(seq, case.v, policy, one.predicted(right[0], case.v))
        self._target.truncate(seq, 0)
        self._target.read(seq, one.prompt[:-1])
        if self._rng.random() < 0.5:
            self._drafter.commit([Committed(seq, request.tokens, request.tokens)])
        return _Guest(one, request, plain, right)

    def _round(self, shared: Policy) -> None:
        by_seq = {g.request.seq: g for g in self._running}
        requests = [g.request for g in self._running]
        for result in decode_round(requests, self._target, self._drafter, shared):
            guest = by_seq[result.request.seq]
            guest.given += result.emitted
            paths = map(result.draft.prefix, range(len(result.draft)))
            guest.deepest = max(guest.deepest, *map(len, paths), 0)
        for guest in self._running:
            guest.rounds += 1
            if guest.request.running and guest.rounds == guest.wish.rounds:
                guest.request.finish = "interrupt"
        for guest in self._running:
            owner = guest.wish.extras.recalls
            if guest.request.finish is not None and owner is not None:
                self._drafter.remember(owner, guest.request.tokens)
            if not guest.request.running and self._rng.random() < 0.5:
                empty(guest.request.seq, self._target, self._drafter)
        self._running = [g for g in self._running if g.request.running]


def _wishes(rng: random.Random, v: int, seed: int) -> tuple[Wish, ...]:
    """Some requests, and some of them again."""
    found = [wish(rng, v, seed + i) for i in range(rng.choice([2, 5, 12]))]
    again = rng.sample(found, rng.choice([0, 0, len(found) // 2]))
    return (*found, *again)


def _wrong(guest: _Guest) -> str | None:
    """What differs from plain decoding."""
    one, request, plain = guest.wish, guest.request, guest.plain
    said = [item.token for item in guest.given]
    if one.extras.most is not None and guest.deepest > one.extras.most:
        return f"{guest.deepest} tokens drafted, {one.extras.most} allowed"
    end = "error" if request.error is not None else str(request.finish)
    if one.verifier == "rejection":
        return _impossible(plain, said, request) or _shown_wrongly(guest, said)
    right, why = guest.right
    if one.defect in METHODS and end == "error" and isinstance(request.error, ValueError):
        taken = max(0, one.at - 1) if one.defect == "take" else len(said)  # the rest is for drafts
        right, why = right[:taken], "error"
    elif end == "interrupt":
        right, why = right[: len(said)], end
    if (said, end) != (right, why):
        return f"plain {right} ({why}), in a batch {said} ({end}: {request.error!r})"
    return _shown_wrongly(guest, said)


def _shown_wrongly(guest: _Guest, said: Sequence[int]) -> str | None:
    """A text or a log-probability that is not that of the tokens."""
    text = "".join(item.text for item in guest.given)
    right = guest.plain.text(said, over=guest.request.finish in {"stop", "length"})
    if text != right:
        return f"the text of {said} is {text!r}, not {right!r}"
    extras = guest.wish.extras
    for i, item in enumerate(guest.given if extras.scored is not None else ()):
        known = guest.plain.logprobs(said[:i], str(extras.scored))
        if item.logprobs is None or not _close(item.logprobs, known, item.token, extras):
            return f"token {i} has {item.logprobs}"
    return None


def _close(found: TokenLogprobs, known: Mapping[int, float], token: int, extras: Extras) -> bool:
    """Whether they are the known ones, and the likeliest of them beside the token's."""
    told = [*found.top, found.chosen]
    likeliest = sorted(known.values(), reverse=True)[: extras.alternatives]
    wanted = [*likeliest, known.get(token, -math.inf)]
    return len(told) == len(wanted) and all(
        abs(one.logprob - known.get(one.token, math.inf)) <= _NEAR
        and abs(one.logprob - right) <= _NEAR
        for one, right in zip(told, wanted, strict=True)
    )


def _impossible(plain: Plain, said: Sequence[int], request: Request) -> str | None:
    """A token of a reply under `rejection` that plain decoding could not have drawn."""
    if isinstance(request.error, AssertionError):
        return f"{request.error!r}"
    for i, token in enumerate(said):
        try:
            p = plain.chances(said[:i])
        except NoTokenError:
            return f"token {i} where nothing may follow"
        if token not in p:
            return f"token {i} of {said} is impossible"
    return None
