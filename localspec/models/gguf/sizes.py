"""What a model takes: weights by layer, KV cache by token, compute buffers. All in bytes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from localspec.models.gguf.header import Header

KV_BYTES = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
}
"""Of one value of a KV cache."""
_UNQUANTIZED = frozenset({"f32", "f16", "bf16"})
_KV_PAD = 256
"""llama.cpp rounds a context up to a multiple of this."""
_QUANT_BLOCK = 32
_F32 = 4
_SLACK = 1.05
"""llama.cpp's allocator leaves gaps: 0 to 8 % above the largest moment of its graph."""
OUTPUTS = 63
"""Rows of logits that a pass may have, as `localspec.llama.context` asks for."""
_OUTPUT_ROWS = 16
"""Rows of logits that the host keeps after the widest pass measured at the start."""
_LAYER = re.compile(r"^blk\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Sizes:
    """A model's appetite, before anything is loaded."""

    name: str
    """Of its file."""
    layers: tuple[int, ...]
    """Weights of each transformer layer."""
    inputs: int
    """Weights that stay on the host: the embedding, and what belongs to no layer."""
    outputs: int
    """Weights of the output layer, which a GPU gets first; with a tied embedding, its copy."""
    tied: bool
    """The output layer is the embedding; the copy exists only where a GPU has the output."""
    largest: int
    """The largest tensor of a layer: prompts carry it to a GPU from the host."""
    kv_width: tuple[int, ...]
    """Values that each layer keeps of one token, keys and values together."""
    state: tuple[int, ...]
    """Recurrent state of each layer, whatever the context."""
    n_vocab: int
    width: int
    activations: int
    """Values of one token at the widest place of a layer."""
    context: int
    """Tokens it was trained to see at once; 0 if not stated."""
    head_size: int
    """Of a key and of a value, or what divides both: a quantized cache needs blocks of 32."""
    doubts: tuple[str, ...] = ()
    """Why KV and compute may be less than stated; a dry run settles it."""
    kv_factor: float = 1.0
    """What a dry run found, over what was computed."""
    compute_factor: float = 1.0

    @property
    def n_layer(self) -> int:
        """Transformer layers; llama.cpp counts the output as one more."""
        return len(self.layers)

    @property
    def weights(self) -> int:
        """Bytes of all tensors."""
        return sum(self.layers) + self.inputs + (0 if self.tied else self.outputs)

    def takes(self, kv_type: str) -> bool:
        """Whether llama.cpp can hold this model's KV cache in that type."""
        return kv_type in _UNQUANTIZED or self.head_size % _QUANT_BLOCK == 0

    def kv(self, layer: int, n_ctx: int, kv_type: str) -> int:
        """KV cache of one layer for ``n_ctx`` tokens."""
        cells = -(-n_ctx // _KV_PAD) * _KV_PAD
        cache = self.kv_width[layer] * cells * KV_BYTES[kv_type]
        return int((cache + self.state[layer]) * self.kv_factor)

    def kv_all(self, n_ctx: int, kv_type: str) -> int:
        """KV cache of all layers."""
        return sum(self.kv(i, n_ctx, kv_type) for i in range(self.n_layer))

    def compute(self, n_ctx: int, n_batch: int) -> int:
        """Compute buffers of a device that has layers and the output.

        The graph is widest at the logits, or in a layer, with the attention mask.
        """
        rows = min(n_ctx, n_batch)
        logits = _F32 * (min(rows, OUTPUTS) * self.n_vocab + rows * 2 * self.width)
        return int(max(logits, self._layer_compute(rows, n_ctx)) * _SLACK * self.compute_factor)

    def compute_beside(self, n_ctx: int, n_batch: int) -> int:
        """Compute buffers of the host when a GPU has the output, and perhaps all layers."""
        return int(self._layer_compute(min(n_ctx, n_batch), n_ctx) * _SLACK * self.compute_factor)

    def _layer_compute(self, rows: int, n_ctx: int) -> int:
        return rows * (_F32 * self.activations + 2 * n_ctx)

    @property
    def rows(self) -> int:
        """Logits kept on the host."""
        return _OUTPUT_ROWS * self.n_vocab * _F32

    def corrected(self, kv: float, compute: float) -> Sizes:
        """The same after a dry run: what it found over what was computed."""
        return replace(
            self,
            kv_factor=self.kv_factor * kv,
            compute_factor=self.compute_factor * compute,
            doubts=(),
        )


def sizes_of(header: Header) -> Sizes:
    """Sizes of a model by its header, which lists the tensors of all its files."""
    n_layer = header.n_layer
    layers, inputs, outputs, embedding, largest = [0] * n_layer, 0, 0, 0, 0
    for tensor in header.tensors:
        at = _LAYER.match(tensor.name)
        if at and int(at[1]) < n_layer:
            layers[int(at[1])] += tensor.n_bytes
            largest = max(largest, tensor.n_bytes)
        elif tensor.name.startswith("output"):
            outputs += tensor.n_bytes
        else:
            inputs += tensor.n_bytes
            if tensor.name == "token_embd.weight":
                embedding = tensor.n_bytes
    tied = all(tensor.name != "output.weight" for tensor in header.tensors)
    kv_width, state, doubts = _kept(header)
    ahead = header.of_model("nextn_predict_layers") or 0
    if 0 < ahead < n_layer and not any(layers[:-ahead]):  # layers for prediction alone
        kv_width, state, doubts = (
            (*(0,) * (n_layer - ahead), *kv_width[-ahead:]),
            (0,) * n_layer,
            (),
        )
    return Sizes(
        name=header.name,
        layers=tuple(layers),
        inputs=inputs + (outputs if tied else 0),
        outputs=outputs + (embedding if tied else 0),
        tied=tied,
        largest=largest,
        kv_width=kv_width,
        state=state,
        n_vocab=header.n_vocab,
        width=header.n_embd,
        activations=_activations(header),
        context=header.context,
        head_size=math.gcd(header.key_length, header.value_length),
        doubts=doubts,
    )


def _kept(header: Header) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
    """What each layer keeps: values by token, bytes of state; and what makes that uncertain."""
    doubts: list[str] = []
    if header.architecture.endswith("-assistant"):  # it reads what the target keeps
        return (0,) * header.n_layer, (0,) * header.n_layer, ()
    if header.of_model("attention.sliding_window"):
        # llama.cpp keeps the whole context for sliding layers too, so that drafts can be undone.
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


def _activations(header: Header) -> int:
    """Values of one token alive at once in a layer, as seen in llama.cpp's graphs."""
    width = header.n_embd
    attention = 3 * width + 2 * header.n_head * header.key_length
    dense = 3 * (header.of_model("feed_forward_length") or 0) + 4 * width
    used = header.of_model("expert_used_count") or 0
    experts = 3 * used * (header.of_model("expert_feed_forward_length") or 0)
    return max(attention, dense, experts + (4 + used) * width if used else 0)
