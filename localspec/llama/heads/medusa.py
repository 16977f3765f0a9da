"""Medusa's heads (Cai et al. 2024, section 2.1.1), computed by ggml next to the target.

Each head is one or more residual blocks on the target's final hidden state x,
y = x + silu(W x + b), and an output matrix H: logits = H y. Head k, from 0, guesses the token k + 2
places after the one that x belongs to; those in between are for the target and the heads before. A
head without an H of its own uses the target's, which all such heads share.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from localspec.core.errors import (
    DecodeError,
    LocalspecError,
    OutOfMemoryError,
    UnsupportedModelError,
)
from localspec.core.values import Logits
from localspec.llama import library
from localspec.llama.heads import ggml as bindings
from localspec.llama.heads.hidden_states import States
from localspec.llama.heads.tensors import Matrix, Weight, mapped
from localspec.models.compat import medusa
from localspec.models.gguf.ggml_types import type_name
from localspec.models.gguf.model_file import ModelFile

_SUCCESS = 0


@dataclass(frozen=True, slots=True)
class MedusaWeights:
    """The weights of the heads."""

    blocks: tuple[tuple[tuple[Weight, Weight], ...], ...]
    """Matrix and bias of each residual block of each head."""
    outputs: tuple[Weight, ...]
    """H of every head; one and the same object where heads share it."""

    @property
    def width(self) -> int:
        """Width of a hidden state."""
        return self.outputs[0].shape[0]

    @property
    def vocabulary(self) -> int:
        """Ids that they guess among."""
        return self.outputs[0].shape[1]

    @property
    def weights(self) -> tuple[Weight, ...]:
        """All of them, each once."""
        found = {w.name: w for head in self.blocks for pair in head for w in pair}
        return tuple((found | {w.name: w for w in self.outputs}).values())


def weights_of(head: ModelFile, target: ModelFile) -> MedusaWeights:
    """The weights in a file that was checked for this target, see `localspec.models.compat.heads`.

    Raises:
        ModelNotFoundError, ModelFileError: a file is not there, damaged or cut short.
    """
    count, blocks = medusa.shape(head.header)
    pairs = [
        [(medusa.matrix(k, j), medusa.bias(k, j)) for j in range(blocks)] for k in range(count)
    ]
    outputs = [medusa.output(k) for k in range(count)]
    found = mapped(
        head, {*outputs, *(name for blocks in pairs for pair in blocks for name in pair)}
    )
    if not found.keys() >= {*outputs}:
        name = medusa.borrowed(target.header)
        found["borrowed"] = mapped(target, {name})[name]
    return MedusaWeights(
        tuple(tuple((found[w], found[b]) for w, b in blocks) for blocks in pairs),
        tuple(found[name if name in found else "borrowed"] for name in outputs),
    )


class Medusa(Protocol):
    """Heads that guess."""

    @property
    def count(self) -> int:
        """Heads, each for one place further."""
        ...

    @property
    def vocabulary(self) -> int:
        """Ids that they guess among."""
        ...

    def guess(self, states: States, heads: int) -> Logits:
        """(heads, n, V) of the first ``heads`` for (n, width) states: a view, overwritten by the
        next call of the same shape.
        """
        ...

    def close(self) -> None:
        """Free it. May be called twice."""
        ...


class NumpyMedusa:
    """Heads computed by numpy: where ggml's calls are missing, and to compare with."""

    def __init__(self, made_of: MedusaWeights) -> None:
        """Raises UnsupportedModelError for types that need ggml."""
        numbers = {w.name: w.numbers() for w in made_of.weights}
        self._blocks = [[(numbers[w.name], numbers[b.name]) for w, b in h] for h in made_of.blocks]
        self._outputs = [numbers[w.name] for w in made_of.outputs]
        self.count, self.vocabulary = len(self._blocks), made_of.vocabulary

    def guess(self, states: States, heads: int) -> Logits:
        """See `Medusa`."""
        return np.stack([self._one(states, k) for k in range(heads)])

    def _one(self, y: States, k: int) -> Matrix:
        for weight, bias in self._blocks[k]:
            inner = y @ weight.T + bias
            y = y + inner / (1 + np.exp(-inner))
        return np.asarray(y @ self._outputs[k].T, np.float32)

    def close(self) -> None:
        """Nothing to free."""


@dataclass(frozen=True, slots=True)
class _Graph:
    """A graph for a number of states and heads, and where its inputs and outputs are."""

    context: Any
    graph: Any
    allocator: Any
    states: Any
    results: tuple[Any, ...]
    logits: Logits
    """(heads, n, V); the results fill it one after the other."""


class GgmlMedusa:
    """Heads computed by ggml on one device, their weights as they are in the file."""

    def __init__(self, made_of: MedusaWeights, *, on_gpu: bool, threads: int) -> None:
        """The call of ggml must be there; ``threads`` are those of a CPU.

        Raises:
            UnsupportedModelError: a type that no device multiplies by.
            OutOfMemoryError: the weights do not fit.
            DecodeError: the device fails.
        """
        ggml = bindings.calls()
        assert ggml is not None
        self._ggml: Any = ggml
        self._parts = made_of
        self.count, self.vocabulary = len(made_of.blocks), made_of.vocabulary
        self._graphs: dict[tuple[int, int], _Graph] = {}
        self._buffer: Any = None
        self._backend: Any = None
        self._context = self._room(len(made_of.weights))
        self._tensors = {w.name: self._declared(w) for w in made_of.weights}
        self._device = self._chosen(on_gpu)
        self._backend = ggml.backend_dev_init(self._device, None)
        if self._backend:
            bindings.set_threads(self._device, self._backend, threads)
            self._buffer = ggml.backend_alloc_ctx_tensors(self._context, self._backend)
        if not self._buffer:
            size = sum(len(w.data) for w in made_of.weights) / 1e9
            self.close()
            raise OutOfMemoryError(f"no room for Medusa heads of {size:.2f} GB")
        for w in made_of.weights:
            data = np.ascontiguousarray(w.data)
            ggml.backend_tensor_set(self._tensors[w.name], data.ctypes.data, 0, data.nbytes)
        try:  # what is lacking shall be known now
            self.guess(np.zeros((1, made_of.width), np.float32), self.count)
        except LocalspecError:
            self.close()
            raise

    def guess(self, states: States, heads: int) -> Logits:
        """See `Medusa`.

        Raises:
            DecodeError: the device failed.
            OutOfMemoryError: what a larger computation needs is not there.
        """
        key = len(states), heads
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._graph(*key)
        given = np.ascontiguousarray(states, np.float32)
        ggml = self._ggml
        ggml.backend_tensor_set(graph.states, given.ctypes.data, 0, given.nbytes)
        code = ggml.backend_graph_compute(self._backend, graph.graph)
        if code != _SUCCESS:
            raise DecodeError(f"ggml failed to compute the Medusa heads (code {code})")
        at = graph.logits.ctypes.data
        for result in graph.results:
            size = ggml.nbytes(result)
            ggml.backend_tensor_get(result, at, 0, size)
            at += size
        return graph.logits

    def close(self) -> None:
        """See `Medusa`."""
        for graph in self._graphs.values():
            self._ggml.gallocr_free(graph.allocator)
            self._ggml.free(graph.context)
        self._graphs.clear()
        if self._buffer:
            self._ggml.backend_buffer_free(self._buffer)
        if self._backend:
            self._ggml.backend_free(self._backend)
        if self._context:
            self._ggml.free(self._context)
        self._buffer = self._backend = self._context = None

    # -- building ------------------------------------------------------------------------------

    def _room(self, tensors: int, nodes: int = 0) -> Any:
        """A context for so many tensors, and for a graph of ``nodes`` of them."""
        ggml = self._ggml
        size = tensors * ggml.tensor_overhead()
        if nodes:
            size += ggml.graph_overhead_custom(nodes, False)
        return ggml.init(bindings.InitParams(size, None, True))

    def _declared(self, w: Weight) -> Any:
        if len(w.shape) == 1:
            return self._ggml.new_tensor_1d(self._context, w.ggml_type, w.shape[0])
        return self._ggml.new_tensor_2d(self._context, w.ggml_type, *w.shape)

    def _chosen(self, on_gpu: bool) -> Any:
        """A GPU where that is wanted and can multiply by all of the weights; else the CPU."""
        ggml = self._ggml
        if on_gpu:
            for kind in (bindings.GPU, bindings.INTEGRATED_GPU):
                device = ggml.backend_dev_by_type(kind)
                if device and self._multiplies(device):
                    return device
            library.logger.warning("the Medusa heads are computed on the CPU")
        device = ggml.backend_dev_by_type(bindings.CPU)
        if not self._multiplies(device):  # to try all the same would abort the process
            self.close()
            kinds = sorted({type_name(w.ggml_type) for w in self._parts.weights})
            raise UnsupportedModelError(
                f"this build of ggml cannot compute Medusa heads of {', '.join(kinds)}"
            )
        return device

    def _multiplies(self, device: Any) -> bool:
        ggml, matrices = self._ggml, [w for w in self._parts.weights if len(w.shape) == 2]
        context = self._room(2 * len(matrices))
        try:
            return all(
                ggml.backend_dev_supports_op(
                    device,
                    ggml.mul_mat(
                        context,
                        self._tensors[w.name],
                        ggml.new_tensor_2d(context, bindings.F32, w.shape[0], self.count),
                    ),
                )
                for w in matrices
            )
        finally:
            ggml.free(context)

    def _graph(self, n: int, heads: int) -> _Graph:
        """All heads in one computation; those that share H go through it side by side."""
        ggml, made_of = self._ggml, self._parts
        # A graph also has a place for each tensor that it reads: those are fewer.
        nodes = 1 + sum(4 * len(blocks) + 2 for blocks in made_of.blocks[:heads])
        context = self._room(nodes, nodes)
        states = ggml.new_tensor_2d(context, bindings.F32, made_of.width, n)
        ggml.set_input(states)
        results = []
        for output, group in itertools.groupby(range(heads), lambda k: made_of.outputs[k].name):
            hidden = [self._hidden(context, states, k) for k in group]
            joined = functools.reduce(lambda a, b: ggml.concat(context, a, b, 1), hidden)
            result = ggml.mul_mat(context, self._tensors[output], joined)
            ggml.set_output(result)
            results.append(result)
        graph = ggml.new_graph_custom(context, nodes, False)
        for result in results:
            ggml.build_forward_expand(graph, result)
        allocator = ggml.gallocr_new(ggml.backend_get_default_buffer_type(self._backend))
        if not ggml.gallocr_alloc_graph(allocator, graph):
            ggml.gallocr_free(allocator)
            ggml.free(context)
            raise OutOfMemoryError("no room for computing the Medusa heads")
        logits = np.empty((heads, n, self.vocabulary), np.float32)
        return _Graph(context, graph, allocator, states, tuple(results), logits)

    def _hidden(self, context: Any, y: Any, k: int) -> Any:
        ggml = self._ggml
        for weight, bias in self._parts.blocks[k]:
            inner = ggml.mul_mat(context, self._tensors[weight.name], y)
            inner = ggml.add(context, inner, self._tensors[bias.name])
            y = ggml.add(context, y, ggml.silu(context, inner))
        return y


def opened(head: ModelFile, target: ModelFile, *, on_gpu: bool, threads: int) -> Medusa:
    """The heads of a file that was checked for this target.

    Raises:
        UnsupportedModelError: this build of ggml cannot compute them.
        OutOfMemoryError: they do not fit.
        ModelNotFoundError, ModelFileError: a file is not there, damaged or cut short.
    """
    made_of = weights_of(head, target)
    if bindings.calls() is None:
        library.logger.warning("the Medusa heads are computed by numpy")
        return NumpyMedusa(made_of)
    return GgmlMedusa(made_of, on_gpu=on_gpu, threads=threads)
