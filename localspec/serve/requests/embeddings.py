"""Requests for vectors of texts, and for the order of documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from localspec.serve.http.errors import bad_request
from localspec.serve.http.typed import Body, Fields, Foreign
from localspec.serve.requests.completion import IDS, require_ids, texts_or_ids
from localspec.serve.requests.foreign_fields import OF_SCORES, OF_VECTORS

MOST_TEXTS = 2048
"""Of a request, as OpenAI has it."""
_WRONG = "must be a text, token ids, or an array of these"
_TEXT = {"type": "string", "minLength": 1}
_INPUT = Meta(
    description="a text, texts, token ids, or several arrays of those",
    extra_json_schema={
        "anyOf": [
            _TEXT,
            {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": MOST_TEXTS},
            IDS,
            {"type": "array", "items": IDS, "minItems": 1, "maxItems": MOST_TEXTS},
        ]
    },
)
ModelName = Annotated[str, Meta(description="the name of the server's model for it")]
Dimensions = Annotated[int, Meta(ge=1, description="the first ones of each vector, at length 1")]


class EmbeddingsBody(Body, kw_only=True):
    """OpenAI's request for vectors."""

    foreign: ClassVar[Mapping[str, Foreign]] = OF_VECTORS
    without_effect: ClassVar[tuple[str, ...]] = ("user",)

    input: Annotated[Any, _INPUT]
    model: ModelName | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Dimensions | None = None

    def texts(self) -> list[str | list[int]]:
        """The texts, or their tokens.

        Raises:
            ApiError: none of these, too many, or an empty one.
        """
        return read_texts(self.input, "input")


class NativeEmbeddingBody(Body, kw_only=True):
    """llama-server's request for vectors."""

    foreign: ClassVar[Mapping[str, Foreign]] = {
        **OF_VECTORS,
        "dimensions": Foreign("use /v1/embeddings"),
    }

    content: Annotated[Any, _INPUT]
    model: ModelName | None = None


class Document(Fields, kw_only=True):
    """A document as an object."""

    text: str


class RerankBody(Body, kw_only=True):
    """Jina's and Cohere's request for the order of documents."""

    foreign: ClassVar[Mapping[str, Foreign]] = OF_SCORES
    without_effect: ClassVar[tuple[str, ...]] = ("max_chunks_per_doc", "priority", "user")

    query: Annotated[str, Meta(min_length=1)]
    documents: Annotated[list[str | Document], Meta(min_length=1, max_length=MOST_TEXTS)]
    model: ModelName | None = None
    top_n: Annotated[int, Meta(ge=1, description="documents in the answer")] | None = None
    return_documents: bool | None = None

    @property
    def texts(self) -> list[str]:
        """The texts of the documents."""
        return [one if isinstance(one, str) else one.text for one in self.documents]


def read_texts(given: Any, name: str) -> list[str | list[int]]:
    """The texts, or their tokens, that a field has.

    Raises:
        ApiError: none of these, too many, or an empty one.
    """
    wrong = f"{_WRONG}, and not empty" if not given or not isinstance(given, list) else _WRONG
    found = texts_or_ids(given, name, most=MOST_TEXTS, things="texts", wrong=wrong)
    empty = next((i for i, one in enumerate(found) if not one), None)
    if empty is not None:
        raise bad_request(f"{name} has an empty text, number {empty}", name)
    require_ids(found, name)
    return found
