"""The encoder, in the shape of LLaVA's: patches, a transformer, two layers into the target's width.

llama.cpp leaves out the last layer of such encoders, so the file has one more, of zeros.
"""

from pathlib import Path

import gguf
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from .pictures import SIDE

PATCH, WIDE, HIDDEN, LAYERS, HEADS, EPS = 16, 96, 256, 3, 4, 1e-6
ROWS = (SIDE // PATCH) ** 2


class Layer(nn.Module):
    """Attention among all patches, and a feed-forward part."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDE, eps=EPS), nn.LayerNorm(WIDE, eps=EPS)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDE, WIDE) for _ in range(4))
        self.up, self.down = nn.Linear(WIDE, HIDDEN), nn.Linear(HIDDEN, WIDE)

    def forward(self, x: Tensor) -> Tensor:
        """(b, rows, WIDE)."""
        y = self.norm1(x)
        q, k, v = (
            f(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        z = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
        x = x + self.out(z)
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Encoder(nn.Module):
    """Pixels to rows of the target's width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, WIDE, PATCH, PATCH, bias=False)
        self.place = nn.Parameter(torch.randn(ROWS, WIDE) * 0.02)
        self.before, self.after = nn.LayerNorm(WIDE, eps=EPS), nn.LayerNorm(WIDE, eps=EPS)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.first, self.second = nn.Linear(WIDE, width), nn.Linear(width, width)

    def seen(self, pixels: Tensor) -> Tensor:
        """(b, ROWS, WIDE) of (b, 3, SIDE, SIDE) in -1 to 1."""
        x = self.before(self.patch(pixels).flatten(2).transpose(1, 2) + self.place)
        for layer in self.layers:
            x = layer(x)
        return self.after(x)

    def forward(self, pixels: Tensor) -> Tensor:
        """(b, ROWS, width)."""
        return self.second(functional.gelu(self.first(self.seen(pixels)), approximate="tanh"))


def write(encoder: Encoder, path: Path, target: Path) -> None:
    """The file that llama.cpp reads."""
    w = gguf.GGUFWriter(path, "clip")
    w.add_name("localspec demo eye")
    w.add_author("localspec")
    w.add_license("mit")
    w.add_description(f"Sees shapes, colours, counts and digits for {target.name}: a toy.")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    w.add_string("clip.projector_type", "mlp")
    w.add_bool("clip.has_vision_encoder", True)
    w.add_bool("clip.use_gelu", True)
    numbers = {
        "image_size": SIDE,
        "patch_size": PATCH,
        "embedding_length": WIDE,
        "feed_forward_length": HIDDEN,
        "block_count": LAYERS + 1,
        "projection_dim": encoder.second.out_features,
        "attention.head_count": HEADS,
    }
    for key, value in numbers.items():
        w.add_uint32(f"clip.vision.{key}", value)
    w.add_float32("clip.vision.attention.layer_norm_epsilon", EPS)
    w.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    w.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])

    def put(name: str, tensor: Tensor) -> None:
        kind = np.float16 if tensor.ndim >= 2 and "position" not in name else np.float32
        w.add_tensor(name, tensor.detach().float().numpy().astype(kind))

    def both(name: str, module: nn.Module) -> None:
        put(f"{name}.weight", module.weight)
        put(f"{name}.bias", module.bias)

    put("v.patch_embd.weight", encoder.patch.weight)
    put("v.position_embd.weight", encoder.place)
    both("v.pre_ln", encoder.before)
    both("v.post_ln", encoder.after)
    names = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "out": "attn_out"}
    names |= {"norm1": "ln1", "norm2": "ln2", "up": "ffn_up", "down": "ffn_down"}
    for i, layer in enumerate(encoder.layers):
        for ours, theirs in names.items():
            both(f"v.blk.{i}.{theirs}", getattr(layer, ours))
    for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
        put(f"v.blk.{LAYERS}.{name}.weight", torch.zeros(WIDE, WIDE))
    put(f"v.blk.{LAYERS}.ffn_up.weight", torch.zeros(32, WIDE))
    put(f"v.blk.{LAYERS}.ffn_down.weight", torch.zeros(WIDE, 32))
    for name in ("ln1", "ln2"):
        put(f"v.blk.{LAYERS}.{name}.weight", torch.ones(WIDE))
    both("mm.0", encoder.first)
    both("mm.2", encoder.second)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
