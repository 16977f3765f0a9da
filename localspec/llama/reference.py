"""llama-cpp-python's own `Llama`, plain and with its prompt lookup: a peer to compare with."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from localspec.core.logits import Sampling

_LOOKUP_TOKENS = 10
"""Drafted at a time: the library's default."""


class Stock:
    """A model loaded by the library's high-level class."""

    def __init__(self, path: Path, *, context: int, threads: int, gpu: bool, lookup: bool) -> None:
        """Load; ``lookup`` drafts by the library's prompt lookup."""
        from llama_cpp import Llama
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        self._rounds = 0
        draft: Any = None
        if lookup:
            draft = LlamaPromptLookupDecoding(num_pred_tokens=_LOOKUP_TOKENS)
        self._lookup = lookup
        self._llama: Any = Llama(
            str(path),
            n_ctx=context,
            n_threads=threads,
            n_threads_batch=threads,
            n_gpu_layers=-1 if gpu else 0,
            draft_model=draft,
            logits_all=lookup,
            verbose=False,
        )
        self._eval = self._llama.eval
        self._llama.eval = self._counted  # type: ignore[method-assign]

    def _counted(self, tokens: Sequence[int]) -> None:
        self._rounds += 1
        self._eval(tokens)

    def answer(
        self,
        tokens: Sequence[int],
        sampling: Sampling,
        seed: int,
        max_tokens: int,
        ends: frozenset[int],
    ) -> tuple[list[int], float, float | None]:
        """(Tokens, tokens a second while decoding, tokens per round where it drafts)."""
        llama = self._llama
        llama.reset()
        llama.set_seed(seed)
        emitted: list[int] = []
        self._rounds = 0
        began = 0.0
        for token in llama.generate(
            list(tokens),
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            temp=sampling.temperature,
        ):
            now = time.perf_counter()
            if not emitted:
                began, self._rounds = now, 0  # the first token belongs to the prompt
            emitted.append(token)
            if token in ends or len(emitted) >= max_tokens:
                break
        seconds = time.perf_counter() - began
        decoded = max(1, len(emitted) - 1)
        rounds = decoded / max(1, self._rounds) if self._lookup else None
        return emitted, decoded / max(seconds, 1e-9), rounds

    def text(self, tokens: Sequence[int]) -> str:
        """The text of the tokens."""
        return bytes(self._llama.detokenize(list(tokens))).decode("utf-8", "replace")

    def close(self) -> None:
        """Free it."""
        self._llama.close()
