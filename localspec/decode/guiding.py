"""Drafts under a grammar: what it forbids is cut off, what it forces is appended.

Tokens that a grammar forces cost no model, and under the mask p is one-hot there, so that every
verifier accepts them. They are verified like all others: if a mask ever allowed a second token, a
forced token could lose speed but not exactness.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from localspec.core.values import GRAMMAR, Draft, Proposal, chain_parents, one_hot
from localspec.drafters.base import Ask


def guided(draft: Draft, ask: Ask) -> Draft:
    """The draft cut and extended by the request's grammar; ``ask.room`` is its longest path.

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
        source=draft.source if len(draft) else GRAMMAR,
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
            above = draft.prefix(parent)
            if parent in (-1, *kept) and ask.legal((*above, int(draft.tokens[node]))) > len(above):
                kept.append(node)
    if len(kept) == len(draft):
        return draft
    place = {node: i for i, node in enumerate(kept)} | {-1: -1}
    return replace(
        draft,
        tokens=draft.tokens[kept],
        parents=np.array([place[int(draft.parents[node])] for node in kept], np.int32),
    )
