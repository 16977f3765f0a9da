"""The grammar of one request, as it travels from a flag to the decode round.

Without numpy and without the grammar library: an interface starts sooner that way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from localspec.core import json_text
from localspec.core.errors import UsageError

GrammarKind = Literal["schema", "json", "regex", "choice", "lark", "gbnf", "tools"]

MAX_TEXT = 1 << 20
"""Most characters of a JSON schema. The grammar library has limits of its own behind this one."""
MAX_GRAMMAR = 1 << 17
"""Most characters of the other kinds: 750 kB of Lark take 11 s to compile."""
MAX_KEYS = 4096
"""Most keys of one object of a schema: 8000 properties take 6 s to compile."""
MAX_DEPTH = 48
"""Most levels of a JSON schema inside each other: the library parses 128 levels of JSON, and an
object's property takes two."""


class HasSchema(Protocol):
    """A class that describes its instances, like a Pydantic model."""

    def model_json_schema(self) -> dict[str, Any]:
        """The JSON schema of its instances."""


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """A grammar, in the form that the user gave."""

    kind: GrammarKind
    text: str = ""
    """A JSON schema as JSON, a regex, a Lark or GBNF grammar; empty for "json" and "choice". For
    "tools" see `localspec.grammar.tools.spec`."""
    choices: tuple[str, ...] = ()
    """The texts to choose from, for "choice"."""

    def __post_init__(self) -> None:
        size = len(self.text) + sum(map(len, self.choices))
        most = MAX_TEXT if self.kind in {"schema", "tools"} else MAX_GRAMMAR
        if size > most:
            raise UsageError(
                f"this grammar has {size} characters, and at most {most} are allowed; "
                "make it smaller"
            )
        if self.kind == "choice" and not all(self.choices or ("",)):
            raise UsageError("choices must not be empty; give texts separated by commas")
        if self.kind not in {"choice", "json"} and not self.text.strip():
            raise UsageError("the grammar is empty")

    @classmethod
    def schema(cls, schema: str | Mapping[str, Any] | HasSchema) -> GrammarSpec:
        """JSON that fits a schema: the schema as JSON text, as a mapping, or as a class with a
        method ``model_json_schema``.

        Raises:
            UsageError: no JSON object, or nested too deep.
        """
        described = getattr(schema, "model_json_schema", None)
        try:
            if callable(described):
                data = described()
            else:
                data = json_text.read(schema) if isinstance(schema, str) else schema
            if data is True:
                data = {}
            if not isinstance(data, Mapping):
                raise UsageError("a JSON schema is an object in braces")
            require_shallow(data)
            return cls("schema", json.dumps(data, allow_nan=False))
        except json.JSONDecodeError as error:
            raise UsageError(f"this schema is not JSON: {error}") from None
        except (TypeError, ValueError) as error:
            raise UsageError(f"this schema cannot be written as JSON: {error}") from None
        except RecursionError:
            raise _too_deep() from None

    @classmethod
    def json_object(cls) -> GrammarSpec:
        """Any JSON object."""
        return cls("json")

    @classmethod
    def regex(cls, pattern: str) -> GrammarSpec:
        """A text that matches a regular expression from its beginning to its end."""
        return cls("regex", pattern)

    @classmethod
    def choice(cls, choices: Sequence[str]) -> GrammarSpec:
        """One of several texts."""
        return cls("choice", choices=tuple(choices))

    @classmethod
    def lark(cls, grammar: str) -> GrammarSpec:
        """A context-free grammar in Lark's syntax, its first rule named ``start``."""
        return cls("lark", grammar)

    @classmethod
    def gbnf(cls, grammar: str) -> GrammarSpec:
        """A context-free grammar in llama.cpp's syntax, its first rule named ``root``."""
        return cls("gbnf", grammar)


def require_shallow(schema: object) -> None:
    """Refuse a schema that is nested too deep, or has too many keys in one place.

    Raises:
        UsageError: it is.
    """
    level: list[object] = [schema]
    for _ in range(2 * MAX_DEPTH):
        inside: list[object] = []
        for one in level:
            if isinstance(one, Mapping):
                if len(one) > MAX_KEYS:
                    raise UsageError(
                        f"this schema has {len(one)} keys in one object; at most {MAX_KEYS} are "
                        "allowed"
                    )
                inside += one.values()
            elif isinstance(one, Sequence) and not isinstance(one, str):
                inside += one
        if not inside:
            return
        level = inside
    raise _too_deep()


def _too_deep() -> UsageError:
    return UsageError(
        f"this schema is nested too deep: at most {MAX_DEPTH} objects inside each other; move "
        'inner parts to "$defs" and refer to them with "$ref"'
    )
