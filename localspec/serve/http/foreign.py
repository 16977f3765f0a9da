"""Fields of other servers that this one does not have, and what a request gets that sends them.

A field that would change the reply is refused, unless its value is the one that changes nothing. A
field that cannot change the reply is named in a notice of the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from localspec.serve.http.errors import bad_request

_MOST = 16
"""Names in a notice."""


class Foreign(Struct, frozen=True):
    """A field that is refused where it would change the reply."""

    instead: str
    """What to do about it, after "NAME is not supported: "."""
    neutral: tuple[Any, ...] = ()
    """Values that change nothing, besides null."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the values that are taken."""
        return {"enum": [None, *self.neutral], "description": f"not supported: {self.instead}"}

    def takes(self, value: object) -> bool:
        """Whether a value changes nothing."""
        return value is None or any(_same(value, one) for one in self.neutral)


def _same(one: object, other: object) -> bool:
    """Whether two values are the same to JSON, where true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def refuse(table: Mapping[str, Foreign], given: Mapping[str, Any], place: str = "") -> None:
    """Refuse the fields of ``table`` in ``given``, an object at ``place`` of a body.

    Raises:
        ApiError: one of them would change the reply.
    """
    for name in given:
        found = table.get(name)
        if found is not None and not found.takes(given[name]):
            where = f"{place}.{name}" if place else name
            raise bad_request(f"{where} is not supported: {found.instead}", where)


def notice(names: Iterable[str]) -> str:
    """A notice about fields without effect; of very many, the first ones are named."""
    found = list(names)
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return f"without effect here: {', '.join(found[:_MOST])}{more}"
