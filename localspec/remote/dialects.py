"""The engines that speak OpenAI's interface, and what each takes beyond it.

Fields and their names are those of the engines' own documentation: vLLM 0.32, SGLang 0.5,
llama-server of llama.cpp, llama-cpp-python 0.3.36, Ollama, LM Studio.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

GrammarWay = Literal["localspec", "vllm", "sglang", "llama.cpp", "llama-cpp-python", "schema"]
ThinkingWay = Literal["template", "effort"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The fields that one engine takes and reports."""

    name: str
    sampling: Mapping[str, str] = field(default_factory=dict)
    """Fields of `Sampling` that it takes beyond OpenAI's, by their name there."""
    further: bool = False
    """Whether it takes llama.cpp's further samplers, `localspec.core.sampler_settings.FURTHER`."""
    no_top_k: int = 0
    """Its value of top_k for all tokens."""
    never_drafting: frozenset[str] = frozenset()
    """Fields of `Sampling` that it refuses where it was started with speculation."""
    always: Mapping[str, Any] = field(default_factory=dict)
    """Fields of every request, so that it tells more."""
    continues: Mapping[str, Any] | None = None
    """Fields of a request whose last message the engine continues; None where it cannot."""
    thinking: ThinkingWay | None = None
    """How thinking is switched on and off."""
    grammar: GrammarWay = "schema"
    switches: bool = False
    """Whether a request may switch speculation off."""
    first_untimed: bool = False
    """Whether its clock starts when the first token is there."""


_SAMPLERS = {name: name for name in ("top_k", "min_p", "repeat_penalty")}
_PENALTY = {"top_k": "top_k", "min_p": "min_p", "repeat_penalty": "repetition_penalty"}
_ON = {"continue_final_message": True, "add_generation_prompt": False}

LLAMA_SERVER = Dialect(
    "llama-server",
    sampling=_SAMPLERS | {"penalty_last_n": "repeat_last_n"},
    further=True,
    always={"timings_per_token": True, "return_progress": True, "cache_prompt": True},
    continues={},
    thinking="template",
    grammar="llama.cpp",
    first_untimed=True,
)
LLAMA_CPP_PYTHON = Dialect("llama_cpp.server", sampling=_SAMPLERS, grammar="llama-cpp-python")
VLLM = Dialect(
    "vLLM",
    sampling=_PENALTY,
    no_top_k=-1,
    never_drafting=frozenset({"min_p"}),
    always={"return_token_ids": True},
    continues=_ON,
    thinking="template",
    grammar="vllm",
)
SGLANG = Dialect(
    "SGLang",
    sampling=_PENALTY,
    no_top_k=-1,
    continues={"continue_final_message": True},
    thinking="template",
    grammar="sglang",
)
LOCALSPEC = Dialect(
    "localspec",
    sampling=_SAMPLERS | {"penalty_last_n": "repeat_last_n"},
    further=True,
    always={"return_token_ids": True, "return_progress": True, "localspec": {"origins": True}},
    continues={},
    thinking="template",
    grammar="localspec",
    switches=True,
)
OLLAMA = Dialect("Ollama", continues={}, thinking="effort")
LM_STUDIO = Dialect("LM Studio", sampling=_SAMPLERS)
UNKNOWN = Dialect("this server")
