"""localspec: exact speculative decoding for quantized models on your own machine.

The names in ``__all__`` are the public API. They are loaded when first used: `localspec --help`
needs neither numpy nor llama.cpp.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localspec.core.adapter_list import AdapterUse
    from localspec.core.emitted import Origin, PromptScored, TokenLogprob, TokenLogprobs
    from localspec.core.errors import LocalspecError
    from localspec.core.events import (
        Finished,
        Loading,
        Message,
        Notice,
        Reading,
        Reply,
        Round,
        Stats,
        Token,
    )
    from localspec.core.grammar_spec import GrammarSpec
    from localspec.core.options import Options
    from localspec.core.picture import Picture
    from localspec.core.reply_request import ReplyRequest
    from localspec.core.sampling_params import GREEDY, Sampling
    from localspec.runtime import Runtime

__version__ = "0.1.0"

__all__ = [
    "GREEDY",
    "AdapterUse",
    "Finished",
    "GrammarSpec",
    "Loading",
    "LocalspecError",
    "Message",
    "Notice",
    "Options",
    "Origin",
    "Picture",
    "PromptScored",
    "Reading",
    "Reply",
    "ReplyRequest",
    "Round",
    "Runtime",
    "Sampling",
    "Stats",
    "Token",
    "TokenLogprob",
    "TokenLogprobs",
]


_HOMES = {
    "AdapterUse": "core.adapter_list",
    "Picture": "core.picture",
    "GREEDY": "core.sampling_params",
    "GrammarSpec": "core.grammar_spec",
    "LocalspecError": "core.errors",
    "Options": "core.options",
    "ReplyRequest": "core.reply_request",
    "Origin": "core.emitted",
    "PromptScored": "core.emitted",
    "Runtime": "runtime",
    "Sampling": "core.sampling_params",
    "TokenLogprob": "core.emitted",
    "TokenLogprobs": "core.emitted",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'localspec' has no attribute {name!r}")
    return getattr(importlib.import_module(f"localspec.{_HOMES.get(name, 'core.events')}"), name)
