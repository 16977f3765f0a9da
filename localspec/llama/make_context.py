"""Making a llama_context."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from localspec.core.errors import OutOfMemoryError
from localspec.llama import library
from localspec.llama.library import c_api
from localspec.llama.limits import KV_TYPES, OUTPUTS, OUTPUTS_EACH
from localspec.llama.model import Model

_FLASH = re.compile(r"(?:Flash Attention|flash_attn\s+=) (auto|enabled|disabled)")
_SPLITS = re.compile(r": graph.*\bsplits = (\d+)(?: / (\d+))?")


@dataclass(frozen=True, slots=True)
class MadeContext:
    """A llama_context, and what llama.cpp logged about it."""

    pointer: Any
    flash_attention: str
    """"enabled", "disabled", or "" where llama.cpp does not say."""
    graph_splits: int
    """Parts of the graph of a pass over one token, each computed by one device; 0 if not logged."""


def context_params(
    model: Model,
    *,
    n_ctx: int,
    n_seq: int,
    branches: int,
    rollback: int,
    n_batch: int,
    threads: int,
    kv_type: str,
) -> Any:
    """Parameters of llama.cpp; the arguments are those of `localspec.llama.context.Context`."""
    params = c_api.llama_context_default_params()
    # Nodes that are rejected need room for one pass.
    params.n_ctx = n_ctx * n_seq + (OUTPUTS if branches else 0)
    params.n_batch = params.n_ubatch = n_batch
    params.n_seq_max = n_seq + branches
    params.kv_unified = branches > 0  # branches share the cells of their common beginning
    params.n_threads = params.n_threads_batch = threads
    # Without layers there, a full GPU is left alone; prompts would be carried to it otherwise.
    params.op_offload = model.offloads
    params.type_k = params.type_v = KV_TYPES[kv_type]
    params.n_rs_seq = rollback
    most = n_batch if model.gives_every_row else max(OUTPUTS, OUTPUTS_EACH * n_seq)
    params.n_outputs_max = min(n_batch, most)
    params.no_perf = True
    params.pooling_type = c_api.LLAMA_POOLING_TYPE_NONE  # states are of tokens
    return params


def make_context(model: Model, params: Any, n_ctx: int) -> MadeContext:
    """A context of llama.cpp.

    Raises:
        OutOfMemoryError: the cache or the compute buffers do not fit.
    """
    library.mark_computing()
    with library.listening(alone=False) as lines, model.waiting():
        library.errors_since(0)
        pointer = c_api.llama_init_from_model(model.handle, params)
        if not pointer:
            reason = (library.errors_since() or ["no reason given"])[0]
            raise OutOfMemoryError(
                f"no context of {n_ctx} tokens for {model.path.name}: {reason}; try a smaller --ctx"
            )
    model.adapters.use(pointer)
    model.vectors.use(pointer)
    return MadeContext(pointer, _flash_attention(lines), graph_splits(lines))


def _flash_attention(lines: Iterable[str]) -> str:
    """The use of flash attention by llama.cpp's log; "auto" is resolved in the last line."""
    found = [match[1] for line in lines if (match := _FLASH.search(line))]
    return found[-1] if found and found[-1] != "auto" else ""


def graph_splits(lines: Iterable[str]) -> int:
    """The splits by the last line about graphs: "splits = 2", or "splits = 46 / 2" where that of
    a prompt, which comes first, has others.
    """
    found = [match[2] or match[1] for line in lines if (match := _SPLITS.search(line))]
    return int(found[-1]) if found else 0
