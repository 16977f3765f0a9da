"""Requests for the text at a cursor, in llama-server's fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args

from msgspec import Meta

from localspec.core.infill import Chunk, Infill
from localspec.core.sampling_params import Sampling
from localspec.serve.http.errors import bad_request
from localspec.serve.http.settings import ServeSettings
from localspec.serve.http.typed import Fields
from localspec.serve.http.wording import REFUSAL
from localspec.serve.requests.generation import GenerationBody

MOST_CHUNKS = 4096
_MOST_FIELDS = 64
_LONGEST_TIME = 86_400_000
_INFILL = "infill"
SamplerName = Literal[
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
    "infill",
]
"""llama.cpp's samplers in its order; infill comes where its clients put it. Those without a
setting here are off, as llama.cpp's are unless a setting of theirs is given."""
_OFF: dict[str, dict[str, float]] = {
    "penalties": {"repeat_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0},
    "top_k": {"top_k": 0},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
    "temperature": {"temperature": 1.0},
}
"""What switches a sampler off that a list does not name."""
_Time = Annotated[
    int, Meta(ge=-1, le=_LONGEST_TIME, description="milliseconds; 0 and -1 are no limit")
]
_Tokens = Annotated[int, Meta(ge=-1, description="most tokens; -1 is no limit, 0 reads the prompt")]


class ChunkFields(Fields, kw_only=True):
    """A piece of another file."""

    text: str
    filename: str | None = None


class InfillBody(GenerationBody, kw_only=True):
    """The body of a request."""

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
    samplers: (
        Annotated[
            list[SamplerName], Meta(max_length=_MOST_FIELDS, description="those that are applied")
        ]
        | None
    ) = None
    response_fields: Annotated[list[str], Meta(max_length=_MOST_FIELDS)] | None = None
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
        fields = self.reply_fields(settings, max_tokens=None if most in {None, -1} else most)
        names = None if self.samplers is None else _named(self.samplers)
        if names is not None:
            fields["sampling"] = _limited(fields["sampling"], names)
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
                certain=names is not None and _INFILL in names,
            )
        }


def _seconds(given: int | None) -> float | None:
    return given / 1000 if given is not None and given > 0 else None


def _named(given: Sequence[str]) -> list[str]:
    """The samplers of a list.

    Raises:
        ApiError: they are in an order that is not possible here.
    """
    names = [name for name in get_args(SamplerName) if name in given]
    if [*given] != names:
        raise bad_request(
            f"samplers are applied in this order, each once: {', '.join(names)}", "samplers"
        )
    return names


def _limited(sampling: Sampling, names: Sequence[str]) -> Sampling:
    """The parameters with those of other samplers switched off."""
    off: dict[str, Any] = {}
    for name, values in _OFF.items():
        if name not in names:
            off |= values
    return dataclasses.replace(sampling, **off)


__all__ = ["ChunkFields", "InfillBody"]
