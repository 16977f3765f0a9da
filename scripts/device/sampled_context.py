"""A context with llama.cpp's samplers at the end of its passes (`llama_context_params.samplers`).

localspec does not use them; `device.samplers` says what they would give.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from localspec.core.values import Ids, Logits
from localspec.llama import library
from localspec.llama.context import Context
from localspec.llama.library import c_api
from localspec.llama.model import Model

K = 64
"""Candidates that top-k leaves."""
_BUFFER = re.compile(r"(compute|output) buffer size =\s+([\d.]+) MiB")
_REFUSED = re.compile(r"device '([^']*)' does not have support for op (\S+)")

Maker = Callable[[], Any]
"""Returns a new sampler of llama.cpp."""


def top_k() -> Any:
    """A sampler that leaves the K best."""
    return c_api.llama_sampler_init_top_k(K)


def greedy() -> Any:
    """A sampler that chooses the best."""
    return c_api.llama_sampler_init_greedy()


@dataclass(frozen=True, slots=True)
class Candidates:
    """A row of logits after samplers."""

    ids: Ids
    """(n,) ascending."""
    logits: Logits
    """(n,) theirs."""


class SampledContext(Context):
    """A context whose device runs a chain of samplers for each sequence."""

    def __init__(
        self, model: Model, makers: Sequence[Maker], rows_each: int = 1, **options: Any
    ) -> None:
        """A chain of one sampler of each of ``makers``, for passes of up to ``rows_each`` rows of a
        sequence; ``options`` are those of `Context`.
        """
        self._makers, self._rows_each = makers, rows_each
        self._chains: list[Any] = []
        self._configs: Any = None
        self._arrays: dict[tuple[int, int], Any] = {}
        with library.listening(alone=False) as lines:
            super().__init__(model, **options)
        self.buffers = buffers(lines)
        """MiB for passes and their results."""
        refused = [match for line in lines if (match := _REFUSED.search(line))]
        self.refused = f"{refused[0][1]} has no {refused[0][2]}" if refused else None
        """The operations that the device lacks for a sampler, which the host is then to run."""

    def _adjust(self, params: Any) -> None:
        n = int(params.n_seq_max)
        self._configs = (c_api.llama_sampler_seq_config * n)()
        for seq, config in enumerate(self._configs):
            chain = c_api.llama_sampler_chain_init(c_api.llama_sampler_chain_default_params())
            self._chains.append(chain)
            for maker in self._makers:
                c_api.llama_sampler_chain_add(chain, maker())
            config.seq_id, config.sampler = seq, ctypes.cast(chain, ctypes.c_void_p)
        params.samplers, params.n_samplers = self._configs, n
        params.n_outputs_max_per_seq = self._rows_each

    def close(self) -> None:
        """Free the context, then the samplers, which it uses until then."""
        super().close()
        while self._chains:
            c_api.llama_sampler_free(self._chains.pop())

    def candidates(self, at: int) -> Candidates:
        """The rest of the row after the token at that place of the last pass; all of it where
        no sampler left out any.
        """
        n = _count(self.handle, at)
        logits = self._array(_logits(self.handle, at), n, ctypes.c_float)
        if n == self.model.n_vocab:
            return Candidates(np.arange(n, dtype=np.int32), logits)
        ids = self._array(_ids(self.handle, at), n, ctypes.c_int32)
        order = ids.argsort()
        return Candidates(ids[order], logits[order])

    def _array(self, address: int, n: int, kind: Any) -> Any:
        """(n,) over llama.cpp's memory. Looking one up is cheaper than making it."""
        found = self._arrays.get((address, n))
        if found is None:
            found = np.ctypeslib.as_array((kind * n).from_address(address))
            self._arrays[address, n] = found
        return found

    def chosen(self, at: int) -> int:
        """The id that the chain says it chose after the token at that place of the last pass."""
        return int(c_api.llama_get_sampled_token_ith(self.handle, at))


def _quick(function: Any, result: Any) -> Any:
    """A function of llama.cpp for the end of a pass, when the device is done: it returns at once,
    so Python's lock is not released for it.
    """
    kind = ctypes.PYFUNCTYPE(result, ctypes.c_void_p, ctypes.c_int32)
    return kind(ctypes.cast(function, ctypes.c_void_p).value)


_count = _quick(c_api.llama_get_sampled_logits_count_ith, ctypes.c_uint32)
_logits = _quick(c_api.llama_get_sampled_logits_ith, ctypes.c_void_p)
_ids = _quick(c_api.llama_get_sampled_candidates_ith, ctypes.c_void_p)


def buffers(lines: Sequence[str]) -> float:
    """MiB of compute and output buffers, by llama.cpp's log."""
    return sum(float(match[2]) for line in lines if (match := _BUFFER.search(line)))
