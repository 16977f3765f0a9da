"""Structured output: the fields of OpenAI, llama.cpp and vLLM as one grammar."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from localspec.core.errors import UsageError
from localspec.core.grammar_spec import GrammarSpec
from localspec.serve.http.errors import bad_request
from localspec.serve.http.typed import NOT_NULL, Fields, Foreign
from localspec.serve.http.wording import FieldError
from localspec.serve.requests.sampling import SamplingFields

FormatType = Literal["text", "json_object", "json_schema"]
AnySchema = Annotated[Any, Meta(description="a JSON schema, or one as text")]
"""Checked where the format is of that kind."""
JsonSchema = Annotated[
    Any,
    Meta(
        description="a JSON schema, or one as text",
        extra_json_schema={
            "anyOf": [
                {"type": ["object", "null"]},
                {"type": "string", "minLength": 2},
                {"const": True},
            ]
        },
    ),
]
FollowedSchema = Annotated[bool, Meta(description="a schema is followed in any case")]
Grammar = Annotated[str, Meta(description="a grammar in GBNF or Lark's syntax; blank is none")]
_Name = Annotated[str, Meta(min_length=1)]
_Texts = _Name | list[_Name]


Named = tuple[str, GrammarSpec]
"""A grammar, behind the name of its field."""
_OTHERS = "use json, regex, choice or grammar"


class NamedSchema(Fields):
    """OpenAI's ``json_schema`` of a chat."""

    without_effect: ClassVar[tuple[str, ...]] = ("description",)

    name: str | None = None
    schema: AnySchema = None
    strict: FollowedSchema | None = None


class ResponseFormat(Fields):
    """``response_format``. llama.cpp's clients leave out the inner object, and put a schema behind
    ``json_object`` too.
    """

    also: ClassVar[dict[str, Any]] = {
        "anyOf": [
            {"properties": {"type": {"not": {"const": "json_schema"}}}},
            {
                "properties": {"json_schema": {"type": "null"}, "schema": NOT_NULL},
                "required": ["schema"],
            },
            {
                "properties": {
                    "json_schema": {"properties": {"schema": NOT_NULL}, "required": ["schema"]}
                },
                "required": ["json_schema"],
            },
        ]
    }

    type: FormatType
    json_schema: NamedSchema | None = None
    schema: AnySchema = None

    def __post_init__(self) -> None:
        if self.type == "json_schema" and self.wanted is None:
            inner = "schema" if self.json_schema is None else "json_schema.schema"
            raise FieldError(inner, "is missing")

    @property
    def wanted(self) -> Any:
        """The schema; None if there is none."""
        return self.schema if self.json_schema is None else self.json_schema.schema

    def followed(self) -> GrammarSpec | None:
        """The grammar; None: any text.

        Raises:
            UsageError: the schema is none.
        """
        if self.type == "text":
            return None
        schema = self.wanted
        return GrammarSpec.json_object() if schema is None else GrammarSpec.schema(schema)


class StructuredOutputs(Fields):
    """vLLM's ``structured_outputs``."""

    foreign: ClassVar[Mapping[str, Foreign]] = {
        **dict.fromkeys(("structural_tag", "whitespace_pattern"), Foreign(_OTHERS)),
        "disable_additional_properties": Foreign(
            "write additionalProperties: false into the schema", (False,)
        ),
    }
    without_effect: ClassVar[tuple[str, ...]] = ("disable_fallback",)

    json: JsonSchema = None
    regex: _Name | None = None
    choice: _Texts | None = None
    grammar: Grammar | None = None
    json_object: bool | None = None
    disable_any_whitespace: (
        Annotated[bool, Meta(description="JSON is written in one way")] | None
    ) = None

    def __post_init__(self) -> None:
        if len(self._given()) > 1:
            raise FieldError("", "has more than one grammar")

    def followed(self) -> GrammarSpec | None:
        """The grammar; None: any text.

        Raises:
            UsageError: it is none.
        """
        return next((_READERS[name](value) for name, value in self._given()), None)

    def _given(self) -> list[tuple[str, Any]]:
        names = ("json", "regex", "choice", "grammar", "json_object")
        values = ((name, getattr(self, name)) for name in names)
        return [(name, value) for name, value in values if value is not None]


class GrammarFields(SamplingFields):
    """How a reply is sampled, and the grammar that it follows."""

    response_format: ResponseFormat | None = None
    grammar: Grammar | None = None
    json_schema: JsonSchema = None
    guided_json: JsonSchema = None
    guided_regex: _Name | None = None
    guided_choice: _Texts | None = None
    guided_grammar: Grammar | None = None
    structured_outputs: StructuredOutputs | None = None

    def grammars(self) -> list[Named]:
        """The grammars that it names.

        Raises:
            ApiError: one is invalid.
        """
        return [
            (name, spec)
            for name, read in _FIELDS.items()
            if (given := getattr(self, name)) is not None
            and (spec := checked_grammar(name, read, given)) is not None
        ]

    def followed(self) -> GrammarSpec | None:
        """The grammar that the reply follows; None: any text.

        Raises:
            ApiError: more than one grammar, or an invalid one.
        """
        return only(self.grammars())


def only(found: Sequence[Named]) -> GrammarSpec | None:
    """The grammar of a request; None: it names none.

    Raises:
        ApiError: it names more than one.
    """
    if len(found) > 1:
        names = " and ".join(name for name, _ in found)
        raise bad_request(f"{names} exclude each other: a reply follows one grammar", found[1][0])
    return found[0][1] if found else None


def checked_grammar(
    name: str, read: Callable[[Any], GrammarSpec | None], given: Any
) -> GrammarSpec | None:
    """The grammar that ``read`` makes of what the field ``name`` holds.

    Raises:
        ApiError: it is none.
    """
    try:
        return read(given)
    except UsageError as error:
        raise bad_request(f"{name}: {error}", name) from None


def _choice(given: str | list[str]) -> GrammarSpec:
    return GrammarSpec.choice((given,) if isinstance(given, str) else given)


def _grammar(text: str) -> GrammarSpec | None:
    if not text.strip():
        return None
    return GrammarSpec.gbnf(text) if "::=" in text else GrammarSpec.lark(text)


_Reader = Callable[[Any], GrammarSpec | None]
_READERS: dict[str, _Reader] = {
    "json": GrammarSpec.schema,
    "regex": GrammarSpec.regex,
    "choice": _choice,
    "grammar": _grammar,
    "json_object": lambda wanted: GrammarSpec.json_object() if wanted else None,
}
"""By field of vLLM's object."""
_FIELDS: dict[str, _Reader] = {
    "response_format": ResponseFormat.followed,
    "grammar": _grammar,
    "json_schema": GrammarSpec.schema,
    "guided_json": GrammarSpec.schema,
    "guided_regex": GrammarSpec.regex,
    "guided_choice": _choice,
    "guided_grammar": _grammar,
    "structured_outputs": StructuredOutputs.followed,
}
