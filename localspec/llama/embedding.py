"""Embedding models and rerankers on llama.cpp: several texts in one pass, pooled to a row each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from localspec.core.embedded import Vectors
from localspec.core.errors import ModelFileError, UnsupportedModelError, UsageError
from localspec.llama.batch import Batch
from localspec.llama.devices import physical_cores
from localspec.llama.library import c_api
from localspec.llama.limits import decode_error, make_context
from localspec.llama.model import Model
from localspec.models.compat.header_vocabulary import NO_POOLING, RANK_POOLING

LONGEST = 2048
"""Most tokens of a text, where the model has learnt as many: a pass reads a text whole."""
TEXTS = 32
"""Texts of one pass."""
_PLACES = re.compile(r"\{(query|document)\}")
_POOLINGS = {1, 2, 3, RANK_POOLING}
"""By the mean of all tokens, by the first or the last one, or a rank."""


class EmbeddingModel:
    """A loaded model whose passes give one row for each text. Belongs to one thread."""

    def __init__(
        self, path: Path, *, gpu_layers: int | None = None, threads: int | None = None
    ) -> None:
        """``threads`` None: one for each core.

        Raises:
            ModelNotFoundError, ModelFileError, UnsupportedModelError, OutOfMemoryError
        """
        # Its own layout: a chat model is refused here, as an embedding model is by `Model` else.
        self._model = model = Model(path, gpu_layers=gpu_layers, generates=False)
        self._ptr: Any = None
        try:
            self._require_embedding_model()
            self.longest = min(LONGEST, model.n_ctx_train or LONGEST)
            params = c_api.llama_context_default_params()
            params.n_ctx = params.n_batch = params.n_ubatch = self.longest
            params.n_seq_max = TEXTS
            params.kv_unified = True
            params.n_threads = params.n_threads_batch = threads or physical_cores()
            params.embeddings = True
            params.pooling_type = c_api.LLAMA_POOLING_TYPE_UNSPECIFIED  # the file's own
            params.op_offload = model.offloads
            params.flash_attn_type = c_api.LLAMA_FLASH_ATTN_TYPE_DISABLED  # rounds keys and values
            params.no_perf = True
            self._ptr = make_context(model, params, self.longest).pointer
        except BaseException:
            self.close()
            raise
        self.pooling = int(c_api.llama_pooling_type(self._ptr))
        self.dimensions = int(c_api.llama_model_n_embd_out(model.handle))
        self._batch = Batch(self.longest)

    def _require_embedding_model(self) -> None:
        model, name = self._model, self._model.path.name
        if model.n_vocab == 0 or model.vocab_type == c_api.LLAMA_VOCAB_TYPE_NONE:
            raise UnsupportedModelError(f"{name} has no vocabulary: it is not a text model")
        pooled = model.metadata.get(f"{model.architecture}.pooling_type", "0")
        if pooled in map(str, NO_POOLING):
            raise UnsupportedModelError(
                f"{name} is no embedding model ({model.architecture}): its file names no pooling; "
                "choose one such as nomic-embed-text, bge-m3 or Qwen3-Embedding"
            )
        if int(pooled) not in _POOLINGS:
            raise ModelFileError(f"{name} has a pooling of unknown type {pooled}")

    @property
    def ranks(self) -> bool:
        """Whether it is a reranker."""
        return self.pooling == RANK_POOLING

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text, with those that the model begins and ends texts with."""
        return self._model.tokenize(text, bos=True)

    def pair_tokens(self, query: str, document: str) -> list[int]:
        """The tokens of a query with a document, as llama-server puts them together: by the
        template "rerank" of the file, or with the tokens that separate texts.
        """
        model, vocabulary = self._model, c_api.llama_model_get_vocab(self._model.handle)
        template = c_api.llama_model_chat_template(model.handle, b"rerank")
        if template:
            # In one pass: a query may hold what is a place for the document in the template.
            texts, whole = (
                {"query": query, "document": document},
                template.decode("utf-8", "replace"),
            )
            filled = _PLACES.sub(lambda place: texts[place[1]], whole)
            return model.tokenize(filled, special=True)
        sep = int(c_api.llama_vocab_sep(vocabulary))
        end = model.special_ids["eos"] if model.special_ids["eos"] >= 0 else sep
        ends = [end] if c_api.llama_vocab_get_add_eos(vocabulary) else []
        separates = [sep] if c_api.llama_vocab_get_add_sep(vocabulary) else []
        begins = [model.special_ids["bos"]] if model.adds_bos else []
        asked, found = model.tokenize(query), model.tokenize(document)
        return [*begins, *asked, *ends, *separates, *found, *ends]

    def require(self, tokens: Sequence[int]) -> None:
        """Refuse tokens that the vocabulary lacks.

        Raises:
            UsageError: one is none of the model's.
        """
        wrong = next((t for t in tokens if not 0 <= t < self._model.n_vocab), None)
        if wrong is not None:
            most = self._model.n_vocab - 1
            raise UsageError(f"token {wrong} is outside of this model's vocabulary, 0 to {most}")

    def rows(self, texts: Sequence[Sequence[int]]) -> Vectors:
        """(n, d) the pooled row of each text, not normalized; of a reranker (n, 1), its score. Each
        text has 1 to ``longest`` tokens.

        Raises:
            DecodeError: llama.cpp failed.
        """
        width = 1 if self.ranks else self.dimensions
        found = np.zeros((len(texts), width), np.float32)
        at = 0
        while at < len(texts):
            end, size = at, 0
            while end < len(texts) and end - at < TEXTS:
                if size + len(texts[end]) > self.longest:
                    break
                size += len(texts[end])
                end += 1
            self._pass(texts[at:end], size)
            for seq in range(end - at):
                row = c_api.llama_get_embeddings_seq(self._ptr, seq)
                found[at + seq] = np.ctypeslib.as_array(row, (width,))
            at = end
        return found

    def _pass(self, texts: Sequence[Sequence[int]], size: int) -> None:
        at = 0
        for seq, tokens in enumerate(texts):
            self._batch.place(at, seq, 0, list(tokens), len(tokens))
            at += len(tokens)
        memory = c_api.llama_get_memory(self._ptr)
        if memory:
            c_api.llama_memory_clear(memory, True)
        code = int(c_api.llama_decode(self._ptr, self._batch.first(size)))
        c_api.llama_synchronize(self._ptr)
        error = decode_error(code)
        if error is not None:
            raise error

    def close(self) -> None:
        """Free it. May be called twice."""
        if self._ptr:
            c_api.llama_free(self._ptr)
            self._ptr = None
        self._model.close()
