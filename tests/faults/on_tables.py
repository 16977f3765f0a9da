"""Exactness on tables: any drafters, budgets, sampling and ends, against plain decoding."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import tables

from faults.runner import Search
from faults.settings import Chance, sampling, simpler
from localspec.core.events import FinishReason
from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.noise import Noise
from localspec.core.values import Proposal
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.decode.verifiers import Match
from localspec.drafters.base import Drafter, Off
from localspec.drafters.cascade import Cascade
from localspec.drafters.heads.head_drafter import ForwardOnlyDrafter
from localspec.drafters.lookup.lookahead import Lookahead
from localspec.drafters.lookup.ngram import NGram
from localspec.drafters.lookup.suffix import Suffix
from localspec.drafters.model.chain import ChainDrafter
from localspec.policy import Policy
from localspec.policy.simple import Plain
from localspec.testing import StopAt, Table, TableModel, TableTarget

KINDS = ("chain", "tree", "head tree", "forward-only", "ngram", "suffix", "lookahead")


@dataclass(frozen=True)
class Case:
    """Some replies one after the other, with the same drafters."""

    seed: int
    v: int
    sharpness: float
    likeness: float
    """Distance of the draft from the target: 0 is the target, 1 another table."""
    drafters: tuple[str, ...]
    sampling: Sampling
    nodes: int
    leaves: int
    limit: int
    replies: int
    end: int | None
    capacity: int


def drafter_of(kind: str, table: Table, favoured: Proposal) -> Drafter:
    """A drafter of that kind, from a table where it needs a model."""
    if kind == "chain":
        return ChainDrafter(TableModel(table), favoured)
    if kind == "forward-only":
        return ForwardOnlyDrafter(TableModel(table), favoured, "forward-only")
    if kind == "tree":
        return tables.branching(table, favoured)
    if kind == "head tree":
        return tables.growing(table, favoured)
    return {"ngram": NGram, "suffix": Suffix, "lookahead": Lookahead}[kind]()


class OnTables(Search):
    """Every drafted reply is the plain one, token for token."""

    def case(self, seed: int) -> Case:
        rng = random.Random(seed)
        v = rng.choice([3, 8, 20, 60])
        prompt = len(tables.PROMPT)
        return Case(
            seed,
            v,
            rng.choice([0.0, 0.5, 1.5, 4.0]),
            rng.choice([0.0, 0.2, 0.5, 1.0]),
            tuple(rng.sample(KINDS, rng.choice([1, 1, 2, 3]))),
            sampling(rng, range(v)),
            rng.choice([1, 4, 12, 40]),
            rng.choice([1, 2, 5, 12]),
            rng.choice([1, 2, 7, 30, 80]),
            rng.choice([1, 2, 3]),
            rng.choice([None, 0, 2]),
            rng.choice([prompt + 5, prompt + 40, 10_000]),
        )

    def wrong(self, case: Case) -> str | None:
        table = tables.random_table(case.seed, case.v, case.sharpness)
        other = tables.random_table(case.seed + 1, case.v, case.sharpness)
        draft = tables.blend(table, other, case.likeness)
        drafter = Cascade([drafter_of(kind, draft, Proposal.COUPLED) for kind in case.drafters])
        for reply in range(case.replies):
            policy = Chance(case.seed + reply, case.nodes, case.leaves)
            drafted, why = _reply(case, table, drafter, policy, reply)
            plain, expected = _reply(case, table, Off(), Plain("plain"), reply)
            if (drafted, why) != (plain, expected):
                return f"reply {reply}: {plain} ({expected}), drafted {drafted} ({why})"
        return None

    def smaller(self, case: Case) -> Iterator[Case]:
        if len(case.drafters) > 1:
            for kind in case.drafters:
                yield replace(case, drafters=(kind,))
        for s in simpler(case.sampling):
            yield replace(case, sampling=s)
        for name, least in (("replies", 1), ("limit", 1), ("nodes", 1), ("leaves", 1)):
            value = getattr(case, name)
            if value > least:
                yield replace(case, **{name: max(least, value // 2)})
        if case.end is not None:
            yield replace(case, end=None)
        yield from () if case.capacity == 10_000 else (replace(case, capacity=10_000),)


def _reply(
    case: Case, table: Table, drafter: Drafter, policy: Policy, number: int
) -> tuple[list[int], FinishReason]:
    """Tokens of one reply and why it ended."""
    rng = random.Random(case.seed + number)
    prompt = [*tables.PROMPT, *(rng.randrange(case.v) for _ in range(3))]
    target = TableTarget(table, capacity=case.capacity)
    target.read(0, prompt[:-1])
    request = Request(
        0,
        prompt,
        LogitsProcessor(case.sampling, case.v),
        Noise(case.seed + number),
        min(case.limit, case.capacity - len(prompt) + 1),
        StopAt(case.end),
        Match(),
    )
    while request.running:
        decode_round([request], target, drafter, policy)
    drafter.close(0)
    if request.error is not None:
        raise request.error
    return [item.token for item in request.emitted], request.finish
