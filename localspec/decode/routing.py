"""Connects policies with drafters: which policy plans for a request, which drafters are asked and
in which order, and which policy learns from the round.

Under a grammar, what it forbids is cut off a draft, and what it forces is appended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from localspec.core.errors import DecodeError, Interrupted
from localspec.core.plan import ANY, NOTHING, PLAIN, DraftPlan, DraftStep, Evidence, Outcome
from localspec.core.target import Target
from localspec.core.values import (
    ROOT,
    Draft,
    Probed,
    Proposal,
    chain_parents,
    no_draft,
    one_hot,
)
from localspec.decode.request import Request
from localspec.drafters.base import Ask, Drafter
from localspec.policy import Policy


def plan(
    shared: Policy, requests: Sequence[Request], drafter: Drafter, target: Target
) -> list[DraftPlan]:
    """Each request's plan, by its own policy or the shared one.

    Every policy sees all requests, since they share the pass whose time it plans with.
    """
    plans = [PLAIN] * len(requests)
    batch = len(requests)
    states = [
        r.state(target, unread=drafter.unread(r.seq, r.tokens), batch=batch) for r in requests
    ]
    for policy, own in _by_policy(shared, requests):
        theirs = set(own)
        told = states
        if len(own) < len(requests):
            told = [
                s if i in theirs else replace(s, other_policy=True) for i, s in enumerate(states)
            ]
        found = policy.plan(told)
        for i in own:
            plans[i] = found[i]
    return plans


def learn(
    shared: Policy,
    requests: Sequence[Request],
    outcomes: Sequence[Outcome],
    evidence: Sequence[Evidence],
) -> None:
    """Tell every policy what became of its plans, and what the pass took."""
    for policy, own in _by_policy(shared, requests):
        if len(own) == len(requests):
            policy.learn(outcomes, evidence)
            continue
        theirs = {requests[i].seq for i in own}
        told = [o if o.seq in theirs else replace(o, other_policy=True) for o in outcomes]
        policy.learn(told, [e for e in evidence if e.seq in theirs])


def _by_policy(shared: Policy, requests: Sequence[Request]) -> list[tuple[Policy, list[int]]]:
    """Every policy in use, with the places of its requests; none where there is no request."""
    if requests and all(r.policy is None for r in requests):
        return [(shared, [*range(len(requests))])]
    found: dict[int, tuple[Policy, list[int]]] = {}
    for i, r in enumerate(requests):
        policy = shared if r.policy is None else r.policy
        found.setdefault(id(policy), (policy, []))[1].append(i)
    return [*found.values()]


_NO_STEP = DraftStep(ANY, NOTHING)


def propose(
    drafter: Drafter, requests: Sequence[Request], plans: Sequence[DraftPlan], target: Target
) -> list[Draft]:
    """One draft for each request: the first one that is not empty, in the order of its plan.

    Steps of equal rank are carried out together, so that a drafter computes the drafts of several
    requests in the same passes. A probe is no draft: the steps after it are carried out. Under a
    grammar, a draft goes on through what the grammar forces, also an empty one.
    """
    batch = len(requests)
    steps = [r.limited(own, target, batch).steps for r, own in zip(requests, plans, strict=True)]
    drafts = [no_draft(drafter.name) for _ in requests]
    for rank in range(max(map(len, steps), default=0)):
        for member in drafter.members:
            chosen = [
                i
                for i, own in enumerate(steps)
                if not len(drafts[i])
                and rank < len(own)
                and own[rank].source in {member.name, ANY}
                and requests[i].drafting.may_use(member.name)
            ]
            if chosen:
                asks = [requests[i].ask(steps[i][rank], target, batch) for i in chosen]
                for i, draft in zip(
                    chosen, _proposed(member, [requests[i] for i in chosen], asks), strict=True
                ):
                    probe = steps[i][rank].probe
                    drafts[i] = _probed(draft) if probe else _beside(drafts[i].probed, draft)
    for i, r in enumerate(requests):
        if r.guided and r.processor.constraint is not None:
            found = r.attempt(partial(guided, drafts[i], r.ask(_NO_STEP, target, batch)))
            drafts[i] = drafts[i] if found is None else found  # it may be empty
    return [
        draft if not len(draft) or draft.tokens.min() >= 0 else _of_text(draft) for draft in drafts
    ]


def _of_text(draft: Draft) -> Draft:
    """The part of a draft without rows of pictures, which a drafter that copies has met in the
    text: nothing but tokens can be emitted.
    """
    kept: list[int] = []
    for node, parent in enumerate(draft.parents.tolist()):
        if draft.tokens[node] >= 0 and parent in (ROOT, *kept):
            kept.append(node)
    return _only(draft, kept)


def _only(draft: Draft, nodes: Sequence[int]) -> Draft:
    """The draft without all but these nodes; the parent of each is among them, or the root."""
    place = {node: i for i, node in enumerate(nodes)} | {ROOT: ROOT}
    return replace(
        draft,
        tokens=draft.tokens[nodes],
        parents=np.array([place[int(draft.parents[node])] for node in nodes], np.int32),
        probs=None if draft.probs is None else tuple(draft.probs[node] for node in nodes),
        forced=frozenset(place[node] for node in draft.forced if node in place),
    )


def _proposed(member: Drafter, requests: Sequence[Request], asks: Sequence[Ask]) -> list[Draft]:
    """The drafts of one drafter. Where it fails, by the grammar of one of the requests for example,
    each is asked for alone, and those for which it fails again have failed.

    Raises:
        Interrupted, DecodeError: a pass failed, which they share.
    """
    try:
        return member.propose(asks)
    except (Interrupted, DecodeError):
        raise
    except Exception:  # noqa: BLE001 - it comes again, in one of those that follow
        drafts = [
            r.attempt(partial(member.propose, [ask])) or [no_draft(member.name)]
            for r, ask in zip(requests, asks, strict=True)
        ]
        return [draft for (draft,) in drafts]


def _probed(empty: Draft) -> Draft:
    """The empty draft of a drafter that was asked for a probe, with the probe recorded."""
    return replace(empty, probed=Probed(empty.source, empty.seconds))


def _beside(probed: Probed | None, draft: Draft) -> Draft:
    """The draft, with the probe of the same round recorded."""
    if probed is None:
        return draft
    return replace(draft, seconds=draft.seconds + probed.seconds, probed=probed)


def guided(draft: Draft, ask: Ask) -> Draft:
    """The draft cut and extended by the request's grammar; ``ask.room`` is its longest path.

    It keeps the name of the drafter that took the time for it, also where all tokens are forced.

    Only drafts that are fixed given the text are cut. Tokens drawn from q were drawn under the
    mask, and leaving one out because of its value would make rejection sampling wrong.
    """
    if draft.proposal is Proposal.DETERMINISTIC and len(draft):
        draft = _legal(draft, ask)
    if not draft.is_chain:
        return replace(draft, forced=_forced_nodes(draft, ask))
    tokens: list[int] = draft.tokens.tolist()
    forced: set[int] = set()
    at = 0
    while at <= len(tokens):
        found = ask.forced(tokens[:at])
        if not found:
            at += 1
            continue
        if tokens[at : at + len(found)] != found[: len(tokens) - at]:
            break  # the draft has another token than the forced one: it will be rejected
        tokens += found[len(tokens) - at :]
        forced.update(range(at, at + len(found)))
        at += len(found)
    added = tokens[len(draft) :]
    if not forced:
        return draft
    return replace(
        draft,
        tokens=np.array(tokens, np.int32),
        parents=chain_parents(len(tokens)),
        probs=None if draft.probs is None else (*draft.probs, *map(one_hot, added)),
        forced=frozenset(forced),
    )


def _forced_nodes(draft: Draft, ask: Ask) -> frozenset[int]:
    """Nodes of a tree that have the only token that the grammar allows there."""
    found = set()
    for node, parent in enumerate(draft.parents.tolist()):
        if ask.forced(draft.prefix(parent))[:1] == [int(draft.tokens[node])]:
            found.add(node)
    return frozenset(found)


def _legal(draft: Draft, ask: Ask) -> Draft:
    """The draft without the nodes that the grammar forbids, and those below them."""
    if draft.is_chain:
        n = ask.legal(draft.tokens.tolist())
        kept = list(range(n))
    else:
        kept = []
        for node, parent in enumerate(draft.parents.tolist()):
            path = (*draft.prefix(parent), int(draft.tokens[node]))
            if parent in (ROOT, *kept) and ask.legal(path) == len(path):
                kept.append(node)
    return draft if len(kept) == len(draft) else _only(draft, kept)
