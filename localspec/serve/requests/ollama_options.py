"""Ollama's ``options`` and ``keep_alive``: sampling parameters and limits of a reply. Options of
loading have no effect, since the server's own flags say how it loads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar

from msgspec import Meta

from localspec.serve.http.typed import Foreign
from localspec.serve.http.wording import REFUSAL
from localspec.serve.requests.foreign_fields import NO_SAMPLER
from localspec.serve.requests.generation import Seed, Stop, Stops
from localspec.serve.requests.sampling import SamplingFields

_UNIT = r"\d{1,9}(?:\.\d{1,9})?(?:ns|us|µs|ms|s|m|h)"
_DURATION = rf"^-?(?:(?:{_UNIT}){{1,8}}|\d{{1,9}}(?:\.\d{{1,9}})?)$"
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_FOR_EVER = 1e9
"""Seconds, of either sign, from which a time has no end."""
_KEEP = Meta(
    description="seconds, or a duration such as 5m; negative: for ever",
    extra={REFUSAL: 'must be a number of seconds or a duration such as "5m"'},
)
KeepAlive = Annotated[int | float | Annotated[str, Meta(pattern=_DURATION)], _KEEP]

LOADING: dict[str, str] = {
    "num_ctx": "--ctx",
    "num_gpu": "--gpu-layers",
    "num_thread": "--threads",
    **dict.fromkeys(("num_batch", "main_gpu", "use_mmap", "use_mlock", "numa", "low_vram"), ""),
    **dict.fromkeys(("f16_kv", "num_keep", "logits_all"), ""),
}
"""Options without effect on a reply, and the flag of the server in place of those that have one."""
OPTIONS: dict[str, Foreign] = {
    "tfs_z": Foreign(NO_SAMPLER, (0, 1)),
    "penalize_newline": Foreign("penalties treat newlines as all tokens", (True,)),
    "vocab_only": Foreign("models are loaded whole", (False,)),
    "embedding_only": Foreign("models are loaded to generate text", (False,)),
}
"""Options that would change a reply."""


class OllamaOptions(SamplingFields):
    """``options``."""

    foreign: ClassVar[Mapping[str, Foreign]] = OPTIONS
    without_effect: ClassVar[tuple[str, ...]] = tuple(LOADING)

    num_predict: Annotated[int, Meta(description="most tokens; below 1: no limit")] | None = None
    seed: Seed = None
    stop: Annotated[Stop | Stops, Meta(description="texts that end the reply")] | None = None


def seconds(given: float | str | None) -> float | None:
    """The seconds of a `KeepAlive`; negative for ever, None where nothing was said."""
    if given is None:
        return None
    found = _read(given) if isinstance(given, str) else given
    return float(found) if abs(found) < _FOR_EVER else -1.0


def _read(given: str) -> float:
    """The seconds of a text."""
    number = given.removeprefix("-")
    parts = re.findall(r"([\d.]+)(ns|us|µs|ms|s|m|h)", number)
    found = sum(float(n) * _SECONDS[unit] for n, unit in parts) if parts else float(number)
    return -found if number != given else found


def with_flag(name: str) -> str:
    """The name of a field, with the flag in place of it where there is one."""
    flag = LOADING.get(name.removeprefix("options."))
    return f"{name} (the server's {flag} says it)" if flag else name
