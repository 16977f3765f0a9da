"""Memory needs of a model: weights by layer, KV cache by token, compute buffers. All in bytes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from localspec.core.settings_schema import KV_TYPES, MAX_K
from localspec.models.gguf.ggml_types import BLOCKS, TYPES
from localspec.models.gguf.header import Header

KV_BYTES = {
    name: size / block for name in KV_TYPES for _, block, size in [BLOCKS[TYPES[name.upper()]]]
}
"""Bytes of one value of a KV cache, by type."""
_UNQUANTIZED = frozenset({"f32", "f16", "bf16"})
_KV_PAD = 256
"""llama.cpp rounds a context up to a multiple of this."""
_QUANT_BLOCK = 32
_F32 = 4
_SLACK = 1.05
"""llama.cpp's allocator leaves gaps: buffers are 0 to 8 % larger than the graph's peak."""
OUTPUTS = MAX_K + 1
"""Rows of logits of one sequence in a pass: the longest draft and one more. llama.cpp reserves
memory for the rows; left alone it would for every token of a batch, which with a large vocabulary
is hundreds of megabytes for rows that nobody asks for."""
OUTPUTS_EACH = 16
"""Rows of logits for each of several sequences: drafts become shorter as a pass is shared."""
_OUTPUT_ROWS = 16
"""Rows of logits that the host stores after the widest pass of the measurements at load."""
_LAYER = re.compile(r"^blk\.(\d+)\.")
EXPERTS = r"\.ffn_(?:up|down|gate|gate_up)_(?:ch)?exps\."
"""Pattern of the names of tensors with the weights of routed experts."""
_EXPERTS = re.compile(EXPERTS)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Memory needs of a model, before anything is loaded."""

    name: str
    """Name of its file."""
    layers: tuple[int, ...] = ()
    """Bytes of the weights of each transformer layer."""
    inputs: int = 0
    """Bytes of weights that stay on the host: the embedding, and tensors outside layers."""
    outputs: int = 0
    """Bytes of the output layer, which a GPU gets first; with a tied embedding, of its copy."""
    tied: bool = False
    """Whether the output layer is the embedding; a copy exists only where a GPU has the output."""
    experts: tuple[int, ...] = ()
    """The part of `layers` that routed experts take; zeros for a dense model."""
    experts_read: float = 1.0
    """Share of the experts' bytes that are read for one token."""
    largest: int = 0
    """Bytes of the largest tensor of a layer, which is copied to a GPU while a prompt is read."""
    kv_width: tuple[int, ...] = ()
    """Values that each layer caches per token, keys and values together."""
    state: tuple[int, ...] = ()
    """Bytes of the recurrent state of each layer, independent of the context."""
    n_vocab: int = 0
    width: int = 0
    activations: int = 0
    """Values of one token at the widest point of a layer."""
    context: int = 0
    """Context length of the training, in tokens; 0 if not stated."""
    positions: int | None = None
    """Most tokens of a context, see `Header.positions`; None if any number is possible."""
    head_size: int = 0
    """Greatest common divisor of key and value width; a quantized cache needs blocks of 32."""
    doubts: tuple[str, ...] = ()
    """Why KV cache and compute buffers may be smaller than estimated; a dry run settles it."""
    kv_factor: float = 1.0
    """KV cache of a dry run, divided by the estimate."""
    sequences: int = 1
    """Sequences that have a KV cache each."""
    compute_factor: float = 1.0
    """Compute buffers of a dry run, divided by the estimate."""
    widest: int | None = None
    """Most tokens of its passes, where that is less than other models'."""

    @property
    def n_layer(self) -> int:
        """Transformer layers, without the output, which llama.cpp counts as one more."""
        return len(self.layers)

    @property
    def weights(self) -> int:
        """Bytes of all tensors."""
        return sum(self.layers) + self.inputs + (0 if self.tied else self.outputs)

    def takes(self, kv_type: str) -> bool:
        """Whether this model's KV cache can have that type."""
        return kv_type in _UNQUANTIZED or self.head_size % _QUANT_BLOCK == 0

    def kv(self, layer: int, n_ctx: int, kv_type: str) -> int:
        """Bytes of the KV cache of one layer for ``n_ctx`` tokens of each sequence."""
        cells = -(-n_ctx // _KV_PAD) * _KV_PAD
        cache = self.kv_width[layer] * cells * KV_BYTES[kv_type]
        return int((cache + self.state[layer]) * self.kv_factor) * self.sequences

    def kv_all(self, n_ctx: int, kv_type: str) -> int:
        """Bytes of the KV cache of all layers."""
        return sum(self.kv(i, n_ctx, kv_type) for i in range(self.n_layer))

    def compute(self, n_ctx: int, n_batch: int) -> int:
        """Bytes of the compute buffers of a device that has layers and the output.

        The graph is widest either at the logits or in a layer, with the attention mask.
        """
        rows = self._rows(n_ctx, n_batch)
        outputs = max(OUTPUTS, OUTPUTS_EACH * self.sequences)
        logits = _F32 * (min(rows, outputs) * self.n_vocab + rows * 2 * self.width)
        return int(max(logits, self._layer_compute(rows, n_ctx)) * _SLACK * self.compute_factor)

    def host_compute(self, n_ctx: int, n_batch: int) -> int:
        """Bytes of the host's compute buffers where a GPU has the output, perhaps all layers."""
        rows = self._rows(n_ctx, n_batch)
        return int(self._layer_compute(rows, n_ctx) * _SLACK * self.compute_factor)

    def _rows(self, n_ctx: int, n_batch: int) -> int:
        return min(n_ctx, n_batch, self.widest or n_batch)

    def _layer_compute(self, rows: int, n_ctx: int) -> int:
        return rows * (_F32 * self.activations + 2 * n_ctx)

    @property
    def rows(self) -> int:
        """Bytes of the logits on the host."""
        return _OUTPUT_ROWS * self.sequences * self.n_vocab * _F32

    def for_sequences(self, n: int) -> Sizes:
        """These sizes with a KV cache for each of ``n`` sequences."""
        return replace(self, sequences=n)

    def corrected(self, kv: float, compute: float) -> Sizes:
        """These sizes corrected by a dry run: its KV cache and buffers over the estimates."""
        return replace(
            self,
            kv_factor=self.kv_factor * kv,
            compute_factor=self.compute_factor * compute,
            doubts=(),
        )


def sizes_of(header: Header) -> Sizes:
    """Sizes of a model by its header, which lists the tensors of all its files."""
    n_layer = header.n_layer
    layers, experts = [0] * n_layer, [0] * n_layer
    inputs, outputs, largest = 0, 0, 0
    for tensor in header.tensors:
        at = _LAYER.match(tensor.name)
        if at and int(at[1]) < n_layer:
            layers[int(at[1])] += tensor.n_bytes
            if _EXPERTS.search(tensor.name):
                experts[int(at[1])] += tensor.n_bytes
            largest = max(largest, tensor.n_bytes)
        elif tensor.name.startswith("output"):
            outputs += tensor.n_bytes
        else:
            inputs += tensor.n_bytes
    tied = "output.weight" not in header.named
    copied = header.named.get("token_embd.weight") if tied else None
    kv_width, state, doubts = _cached(header)
    ahead = header.next_layers
    if 0 < ahead < n_layer and not any(layers[:-ahead]):  # a sidecar of layers for prediction
        kv_width, state, doubts = (
            (*(0,) * (n_layer - ahead), *kv_width[-ahead:]),
            (0,) * n_layer,
            (),
        )
    return Sizes(
        name=header.name,
        layers=tuple(layers),
        inputs=inputs + (outputs if tied else 0),
        outputs=outputs + (0 if copied is None else copied.n_bytes),
        tied=tied,
        experts=tuple(experts),
        experts_read=_experts_read(header),
        largest=largest,
        kv_width=kv_width,
        state=state,
        n_vocab=header.n_vocab,
        width=header.n_embd,
        activations=_activations(header),
        context=header.context,
        positions=header.positions,
        head_size=math.gcd(header.key_length, header.value_length),
        doubts=doubts,
    )


def _cached(header: Header) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
    """Values per token and bytes of state that each layer caches, and why these are uncertain."""
    doubts: list[str] = []
    if header.architecture.endswith("-assistant"):  # it reads the target's cache
        return (0,) * header.n_layer, (0,) * header.n_layer, ()
    if header.of_model("attention.sliding_window"):
        # llama.cpp stores the whole context for sliding layers too, so that drafts can be undone.
        doubts.append("sliding-window layers are counted with the whole context")
    if header.of_model("attention.kv_lora_rank"):
        doubts.append("latent attention (MLA) is counted with keys and values")
    per_head = header.key_length + header.value_length
    kv_width = tuple(heads * per_head for heads in header.heads_kv())
    inner, size = header.of_model("ssm.inner_size") or 0, header.of_model("ssm.state_size") or 0
    state = 0
    if inner:
        doubts.append("every layer is counted with both a recurrent state and a KV cache")
        groups = header.of_model("ssm.group_count") or 0
        kernel = header.of_model("ssm.conv_kernel") or 1
        state = _F32 * ((kernel - 1) * (inner + 2 * groups * size) + size * inner)
    return kv_width, (state,) * len(kv_width), tuple(doubts)


def _experts_read(header: Header) -> float:
    """Share of the experts that one token is sent to."""
    count, used = header.of_model("expert_count") or 0, header.of_model("expert_used_count") or 0
    return min(1.0, used / count) if count else 1.0


def _activations(header: Header) -> int:
    """Values of one token that exist at the same time in a layer, by llama.cpp's graphs."""
    width = header.n_embd
    attention = 3 * width + 2 * header.n_head * header.key_length
    dense = 3 * (header.of_model("feed_forward_length") or 0) + 4 * width
    used = header.of_model("expert_used_count") or 0
    experts = 3 * used * (header.of_model("expert_feed_forward_length") or 0)
    return max(attention, dense, experts + (4 + used) * width if used else 0)
