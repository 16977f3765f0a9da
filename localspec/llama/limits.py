"""Making a llama_context: its limits and parameters, and the errors that its return codes mean."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from localspec.core.errors import (
    ContextFullError,
    DecodeError,
    Interrupted,
    LocalspecError,
    OutOfMemoryError,
    PassRefusedError,
)
from localspec.core.processes import crash
from localspec.llama import library
from localspec.llama.library import c_api
from localspec.llama.model import Model
from localspec.models.gguf.ggml_types import TYPES
from localspec.models.gguf.sizes import KV_BYTES, OUTPUTS, OUTPUTS_EACH

KV_TYPES = {name: TYPES[name.upper()] for name in KV_BYTES}
"""ggml types that a KV cache can have."""

HANDED_OVER = 32
"""Rows of a pass from which on llama.cpp computes with weights on the host elsewhere: it carries
them to the device in every pass (``op_offload_min_batch_size`` of its back ends), or hands them to
a matrix library (``min_batch`` of its BLAS back end)."""

LEAST_ROWS = 2
"""Rows of each sequence in a pass of strict mode: attention over a single row rounds otherwise, in
about one number of a thousand, whatever the type of the weights."""
STRICT_BATCH = 128
"""Tokens in one pass over a prompt in strict mode, without flash attention: the scores of all heads
are then stored, for every token of the pass and every one of the context."""

ROLLBACK = 7
"""Tokens that a recurrent state can be taken back after a pass, where llama.cpp keeps the last
states: each costs the memory of a whole one."""

_SUCCESS, _NO_SLOT, _ABORTED, _BAD_BATCH = 0, 1, 2, -1

_FLASH = re.compile(r"(?:Flash Attention|flash_attn\s+=) (auto|enabled|disabled)")
_SPLITS = re.compile(r": graph.*\bsplits = (\d+)(?: / (\d+))?")


def decode_error(code: int) -> LocalspecError | None:
    """The exception for a return code of llama_decode; None for success."""
    if code == _SUCCESS:
        return None
    if code == _NO_SLOT:
        return ContextFullError()
    if code == _ABORTED:
        return Interrupted("interrupted")
    if failure := crash.device_failure(*library.errors()):
        advice = crash.advice(0, "", failure)
        return DecodeError(f"{failure}, and llama.cpp could not decode; {advice}")
    reason = library.errors()[-1:] or ["no reason given; see the log"]
    if code == _BAD_BATCH:
        return PassRefusedError(f"llama.cpp refused a batch: {reason[0]}")
    return DecodeError(f"llama.cpp failed to decode (code {code}): {reason[0]}")


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
        library.forget_errors()
        pointer = c_api.llama_init_from_model(model.handle, params)
        if not pointer:
            reason = (library.errors() or ["no reason given"])[0]
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
