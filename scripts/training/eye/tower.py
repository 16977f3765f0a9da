"""The vision tower and projector as PyTorch computes them, and as libmtmd reads them (LLaVA's form)."""

from __future__ import annotations

from pathlib import Path

import gguf
import torch
from demo.files import finish, put_as
from gguf import GGMLQuantizationType as Kind
from torch import Tensor, nn
from torch.nn import functional

SIDE, PATCH = 48, 8
ROWS = (SIDE // PATCH) ** 2
WIDTH, LAYERS, ATTENDING, HIDDEN = 128, 4, 4, 256
EPS = 1e-6


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH, EPS), nn.LayerNorm(WIDTH, EPS)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln1(x)
        q, k, v = (
            f(y).unflatten(-1, (ATTENDING, -1)).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        z = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(z.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Tower(nn.Module):
    """Pixels to features."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Linear(3 * PATCH * PATCH, WIDTH, bias=False)
        self.places = nn.Parameter(torch.randn(ROWS, WIDTH) * 0.02)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.last = nn.LayerNorm(WIDTH, EPS)

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, SIDE, SIDE, 3) uint8 to (B, ROWS, WIDTH)."""
        x = pixels.float() / 127.5 - 1
        n = SIDE // PATCH
        x = x.view(-1, n, PATCH, n, PATCH, 3).permute(0, 1, 3, 5, 2, 4).flatten(3).flatten(1, 2)
        x = self.patch(x) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


class Projector(nn.Module):
    """Features to rows of the model's input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, width), nn.Linear(width, width)

    def forward(self, features: Tensor) -> Tensor:
        return self.second(functional.gelu(self.first(features), approximate="tanh"))


class Heads(nn.Module):
    """Asks the tower about each label of a scene; only its training needs them."""

    def __init__(self, classes: tuple[int, ...]) -> None:
        super().__init__()
        self.asked = nn.Parameter(torch.randn(len(classes), WIDTH) * WIDTH**-0.5)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.answers = nn.ModuleList(nn.Linear(WIDTH, n) for n in classes)

    def forward(self, features: Tensor) -> list[Tensor]:
        p = (self.asked @ self.key(features).transpose(1, 2)).softmax(-1)
        return [answer((p @ features)[:, i]) for i, answer in enumerate(self.answers)]


def write(tower: Tower, projector: Projector, path: Path) -> None:
    """The file that libmtmd reads, in F16."""
    w = gguf.GGUFWriter(path, "clip")
    w.add_name("localspec demo-sees projector")
    w.add_license("mit")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    w.add_string("clip.projector_type", "mlp")
    w.add_bool("clip.has_vision_encoder", True)
    w.add_bool("clip.use_gelu", True)
    numbers = {
        "image_size": SIDE,
        "patch_size": PATCH,
        "embedding_length": WIDTH,
        "feed_forward_length": HIDDEN,
        "block_count": LAYERS,
        "projection_dim": projector.second.out_features,
        "attention.head_count": ATTENDING,
    }
    for key, value in numbers.items():
        w.add_uint32(f"clip.vision.{key}", value)
    # Without it LLaVA's graph leaves the last layer out.
    w.add_array("clip.vision.feature_layer", [LAYERS])
    w.add_float32("clip.vision.attention.layer_norm_epsilon", EPS)
    w.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    w.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])

    def put(name: str, tensor: Tensor) -> None:
        kind = Kind.F32 if "position" in name else Kind.F16
        put_as(w, name, tensor.detach().float().contiguous().numpy(), kind)

    def both(name: str, module: nn.Linear | nn.LayerNorm) -> None:
        put(f"{name}.weight", module.weight)
        put(f"{name}.bias", module.bias)

    put("v.patch_embd.weight", tower.patch.weight.view(WIDTH, 3, PATCH, PATCH))
    put("v.position_embd.weight", tower.places)
    both("v.post_ln", tower.last)
    for i, layer in enumerate(tower.layers):
        at = f"v.blk.{i}"
        both(f"{at}.ln1", layer.ln1)
        both(f"{at}.ln2", layer.ln2)
        for name in ("q", "k", "v", "out"):
            both(f"{at}.attn_{name}", getattr(layer, name))
        both(f"{at}.ffn_up", layer.up)
        both(f"{at}.ffn_down", layer.down)
    both("mm.0", projector.first)
    both("mm.2", projector.second)
    finish(w)
