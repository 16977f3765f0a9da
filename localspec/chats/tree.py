"""Branches: which message follows which."""

from __future__ import annotations

from collections.abc import Iterable


class Tree:
    """Ids and their parents; a parent's id is smaller than its child's."""

    def __init__(self, links: Iterable[tuple[int, int | None]] = ()) -> None:
        """``links`` are pairs (id, parent), parents first."""
        self._parents: dict[int, int | None] = {}
        self._children: dict[int | None, list[int]] = {}
        for id, parent in links:  # noqa: A001 - an id is what it is
            self.add(id, parent)

    def add(self, id: int, parent: int | None) -> None:  # noqa: A002 - as above
        """One more message.

        Raises:
            ValueError: the id is taken or not larger than its parent's, or the parent is not there.
        """
        if id in self._parents:
            raise ValueError(f"message {id} is there twice")
        if parent is not None and (parent not in self._parents or parent >= id):
            raise ValueError(f"message {id} follows {parent}, which does not come before it")
        self._parents[id] = parent
        children = self._children.setdefault(parent, [])
        children.append(id)
        if len(children) > 1 and children[-2] > id:
            children.sort()

    def path(self, leaf: int | None) -> list[int]:
        """Messages from the first one to ``leaf``."""
        path = []
        while leaf is not None:
            path.append(leaf)
            leaf = self._parents[leaf]
        path.reverse()
        return path

    def newest_leaf(self, id: int | None = None) -> int | None:  # noqa: A002 - as above
        """The leaf reached by always taking the newest branch; None in an empty tree."""
        while children := self._children.get(id):
            id = children[-1]  # noqa: A001 - as above
        return id

    def leaves(self) -> list[int]:
        """The last message of every branch; those of one fork are adjacent, oldest first."""
        found, waiting = [], self._children.get(None, [])[::-1]
        while waiting:
            id = waiting.pop()  # noqa: A001 - as above
            children = self._children.get(id, [])
            waiting += children[::-1]
            if not children:
                found.append(id)
        return found
