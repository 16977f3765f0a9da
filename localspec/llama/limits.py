"""Limits of a context, and the errors that its return codes mean."""

from __future__ import annotations

from localspec.core.errors import (
    ContextFullError,
    DecodeError,
    Interrupted,
    LocalspecError,
    PassRefusedError,
)
from localspec.core.processes import crash
from localspec.llama import library

KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "bf16": 30}
"""ggml types that a KV cache can have."""
OUTPUTS = 63
"""Rows of logits of one sequence in a pass: the longest draft and one more. From 64 tokens on,
llama.cpp computes attention with another kernel, whose logits differ from those of plain decoding.
llama.cpp reserves memory for the rows; left alone it would for every token of a batch, which with a
large vocabulary is hundreds of megabytes for rows that nobody asks for."""

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

OUTPUTS_EACH = 16
"""Rows of logits for each of several sequences: drafts become shorter as a pass is shared."""

ROLLBACK = 7
"""Tokens that a recurrent state can be taken back after a pass, where llama.cpp keeps the last
states: each costs the memory of a whole one."""

_SUCCESS, _NO_SLOT, _ABORTED, _BAD_BATCH = 0, 1, 2, -1


def decode_error(code: int) -> LocalspecError | None:
    """The exception for a return code of llama_decode; None for success."""
    if code == _SUCCESS:
        return None
    if code == _NO_SLOT:
        return ContextFullError("the context is full; start a new chat or raise --ctx")
    if code == _ABORTED:
        return Interrupted("interrupted")
    if failure := crash.device_failure(*library.errors_since()):
        advice = crash.advice(0, "", failure)
        return DecodeError(f"{failure}, and llama.cpp could not decode; {advice}")
    reason = library.errors_since()[-1:] or ["no reason given; see the log"]
    if code == _BAD_BATCH:
        return PassRefusedError(f"llama.cpp refused a batch: {reason[0]}")
    return DecodeError(f"llama.cpp failed to decode (code {code}): {reason[0]}")
