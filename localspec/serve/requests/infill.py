"""Requests for the text at a cursor, in llama-server's fields."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from localspec.core.infill import MOST_CHUNKS, Chunk, Infill
from localspec.serve.http.errors import bad_request
from localspec.serve.http.settings import ServeSettings
from localspec.serve.http.typed import Fields
from localspec.serve.http.wording import REFUSAL
from localspec.serve.requests.generation import GenerationBody

_MOST_FIELDS = 64
_LONGEST_FIELD = 200
"""Characters of a path to a field of the answer."""
_LONGEST_TIME = 86_400_000
_INFILL = "infill"
_Time = Annotated[
    int, Meta(ge=-1, le=_LONGEST_TIME, description="milliseconds; 0 and -1 are no limit")
]
_Tokens = Annotated[int, Meta(ge=-1, description="most tokens; -1 is no limit, 0 reads the prompt")]


class ChunkFields(Fields, kw_only=True):
    """A piece of another file."""

    text: str
    filename: str | None = None


class InfillBody(GenerationBody, kw_only=True):
    """A request for the text at a cursor."""

    without_effect: ClassVar[tuple[str, ...]] = (
        *GenerationBody.without_effect,
        # What is cached is found wherever it is, and one sequence is as good as another.
        *("id_slot", "n_keep"),
    )

    input_prefix: Annotated[str, Meta(description="the text before the cursor")]
    input_suffix: Annotated[str, Meta(description="the text behind it")]
    input_extra: (
        Annotated[list[ChunkFields], Meta(max_length=MOST_CHUNKS, description="other files")] | None
    ) = None
    prompt: Annotated[str, Meta(description="goes on behind input_prefix")] | None = None
    n_indent: (
        Annotated[int, Meta(ge=0, le=1 << 20, description="spaces of further lines, at least")]
        | None
    ) = None
    n_predict: _Tokens | None = None
    max_tokens: _Tokens | None = None
    t_max_predict_ms: _Time | None = None
    t_max_prompt_ms: _Time | None = None
    response_fields: (
        Annotated[
            list[Annotated[str, Meta(max_length=_LONGEST_FIELD)]], Meta(max_length=_MOST_FIELDS)
        ]
        | None
    ) = None
    return_tokens: bool | None = None
    n_probs: (
        Annotated[int, Meta(ge=0, le=0, extra={REFUSAL: "must be 0: /v1/completions has logprobs"})]
        | None
    ) = None

    def request(self, settings: ServeSettings) -> dict[str, Any]:
        """The fields of `ReplyRequest`.

        Raises:
            ApiError: one is invalid.
        """
        most = self.max_tokens if self.n_predict is None else self.n_predict
        given = self.samplers  # type: ignore[attr-defined] # a setting: see `SamplingFields`
        others, certain = _without_infill(given)
        body = msgspec.structs.replace(self, samplers=others)
        fields = body.reply_fields(settings, max_tokens=None if most in {None, -1} else most)
        return fields | {
            "infill": Infill(
                prefix=self.input_prefix,
                suffix=self.input_suffix,
                prompt=self.prompt or "",
                extra=tuple(
                    Chunk("tmp" if one.filename is None else one.filename, one.text)
                    for one in self.input_extra or ()
                ),
                suffix_first=settings.suffix_first,
                indent=self.n_indent or 0,
                predict_seconds=_seconds(self.t_max_predict_ms),
                prompt_seconds=_seconds(self.t_max_prompt_ms),
                certain=certain,
            )
        }


def _seconds(given: int | None) -> float | None:
    return given / 1000 if given is not None and given > 0 else None


def _without_infill(given: Any) -> tuple[Any, bool]:
    """The other samplers of a list, and whether llama.cpp's sampler "infill" comes after them.

    Raises:
        ApiError: it comes before another one.
    """
    if not isinstance(given, list) or _INFILL not in given:
        return given, False
    if given.index(_INFILL) != len(given) - 1:
        raise bad_request("infill is the last sampler here", "samplers")
    return given[:-1], True
