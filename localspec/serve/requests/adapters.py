"""Requests about LoRA adapters: which ones a reply is computed with, their usual scales, and
loading them.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from localspec.core.adapter_list import MOST, SCALES, AdapterUse
from localspec.serve.http.typed import Body, Fields
from localspec.serve.http.wording import REFUSAL

_LARGEST = 100


class AdapterScale(Fields, kw_only=True):
    """One adapter by its number of ``/lora-adapters``."""

    id: Annotated[int, Meta(ge=0, description="its number in /lora-adapters")]
    scale: Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST, extra={REFUSAL: SCALES})]

    @property
    def use(self) -> AdapterUse:
        """The adapter on its way to the engine, with its number in place of its file."""
        return AdapterUse(str(self.id), self.scale)


Scales = Annotated[
    list[AdapterScale],
    Meta(max_length=MOST, description="adapters to compute with; those left out have the scale 0"),
]


def uses(given: list[AdapterScale] | None) -> tuple[AdapterUse, ...] | None:
    """The adapters that a field names; None where it is left out, or empty as in llama-server."""
    return tuple(one.use for one in given) if given else None


class ScalesBody(Fields, kw_only=True):
    """The list that is the body of ``POST /lora-adapters``, as a field."""

    lora: Scales


_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Path = Annotated[str, Meta(min_length=1, max_length=4096)]


class LoadAdapterBody(Body, kw_only=True):
    """vLLM's request to load an adapter."""

    without_effect = ("lora_int_id",)

    lora_name: Annotated[_Name, Meta(description="the name of a model that requests then have")]
    lora_path: Annotated[_Path, Meta(description="a GGUF file in a folder of --lora-folder")]
    load_inplace: bool | None = None


class UnloadAdapterBody(Body, kw_only=True):
    """vLLM's request to unload an adapter."""

    without_effect = ("lora_int_id",)

    lora_name: _Name
