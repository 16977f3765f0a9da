"""Small random GGUF files of models that see, a projector for each family, and pictures."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf_tools import add_vocabulary, byte_vocabulary, write_llama, written
from head_files import HEADS, HEADS_KV, HIDDEN, WIDTH, Maker
from PIL import Image, ImageDraw

FAMILIES = ("llava", "gemma3", "qwen2vl", "qwen2.5vl", "qwen3vl", "pixtral")
KINDS = ("llava", "gemma3", "qwen3vl")
"""One family of each kind that caches, batches and the process of the encoder know: rows like text,
rows that see all of each other, and rows with positions in three dimensions that are wider too."""
_AROUND = {
    "gemma3": ("<start_of_image>", "<end_of_image>"),
    "qwen2vl": ("<|vision_start|>", "<|vision_end|>"),
    "qwen2.5vl": ("<|vision_start|>", "<|vision_end|>"),
    "qwen3vl": ("<|vision_start|>", "<|vision_end|>"),
    "pixtral": ("[IMG_END]",),
}
_KINDS = {
    "llava": "mlp",
    "qwen2vl": "qwen2vl_merger",
    "qwen2.5vl": "qwen2.5vl_merger",
    "qwen3vl": "qwen3vl_merger",
}
_V, _FF, _PATCH, _SIDE = 32, 48, 8, 64
"""Width and feed-forward width of the encoder, pixels of a patch, and of a side."""


@dataclass(frozen=True)
class Seeing:
    """A model that sees, in a folder of its own."""

    model: Path
    projector: Path


def write_seeing(folder: Path, family: str, *, seed: int = 0, context: int = 1024) -> Seeing:
    """A random model of a family, and its projector beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    model = _model(folder / f"{family}.gguf", family, seed, context)
    return Seeing(model, write_projector(folder / f"mmproj-{family}.gguf", family, seed=seed + 1))


def _model(path: Path, family: str, seed: int, context: int) -> Path:
    controls = _AROUND.get(family, ())
    if family in {"llava", "pixtral"}:
        return write_llama(path, seed=seed, width=WIDTH, context=context, controls=controls)
    architecture = {"gemma3": "gemma3", "qwen3vl": "qwen3vl"}.get(family, "qwen2vl")
    m = Maker(path, architecture, seed, scale=0.5)
    m.shape(2, context)
    w = m.writer
    words = [*byte_vocabulary(), *controls]
    add_vocabulary(w, words, controls)
    size = WIDTH // HEADS
    if architecture == "gemma3":
        w.add_sliding_window(512)
    else:
        w.add_rope_dimension_sections([size // 4, size // 8, size // 8, 0])
    if architecture == "qwen3vl":
        w.add_num_deepstack_layers(1)
    m.matrix("token_embd.weight", len(words), WIDTH)
    m.ones("output_norm.weight")
    for i in range(2):
        b = f"blk.{i}"
        m.ones(f"{b}.attn_norm.weight", f"{b}.ffn_norm.weight")
        m.attention(b)
        m.feed_forward(b)
        if architecture in {"gemma3", "qwen3vl"}:
            m.ones(f"{b}.attn_q_norm.weight", f"{b}.attn_k_norm.weight", width=size)
        if architecture == "gemma3":
            m.ones(f"{b}.post_attention_norm.weight", f"{b}.post_ffw_norm.weight")
        if architecture == "qwen2vl":
            for name, n in (("q", HEADS), ("k", HEADS_KV), ("v", HEADS_KV)):
                w.add_tensor(f"{b}.attn_{name}.bias", np.zeros(n * size, np.float32))
    return m.done()


def write_projector(  # noqa: C901, PLR0912, PLR0915 - one line a key or tensor
    path: Path, family: str, *, seed: int = 1, width: int = WIDTH
) -> Path:
    """The encoder of a family for a model of that width."""
    rng, w = np.random.default_rng(seed), gguf.GGUFWriter(path, "clip")
    w.add_string("clip.projector_type", _KINDS.get(family, family))
    w.add_bool("clip.has_vision_encoder", True)
    w.add_bool("clip.use_gelu", True)
    numbers = {
        "image_size": _SIDE,
        "patch_size": _PATCH,
        "embedding_length": _V,
        "feed_forward_length": _FF,
        "block_count": 2,
        "projection_dim": width,
        "attention.head_count": 2,
    }
    for key, value in numbers.items():
        w.add_uint32(f"clip.vision.{key}", value)
    w.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    w.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    w.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])

    def matrix(name: str, out: int, into: int) -> None:
        weights = rng.normal(0, 1 / np.sqrt(into), (out, into)).astype(np.float32)
        w.add_tensor(f"{name}.weight", weights)
        w.add_tensor(f"{name}.bias", np.zeros(out, np.float32))

    def norm(name: str, n: int = _V) -> None:
        w.add_tensor(f"{name}.weight", np.ones(n, np.float32))
        if family not in {"pixtral", "qwen2.5vl"}:
            w.add_tensor(f"{name}.bias", np.zeros(n, np.float32))

    def patches(name: str) -> None:
        size = (_V, 3, _PATCH, _PATCH)
        w.add_tensor(name, rng.normal(0, 0.1, size).astype(np.float32))

    patches("v.patch_embd.weight")
    if family.startswith("qwen"):
        patches("v.patch_embd.weight.1")
    if family == "qwen3vl":
        w.add_tensor("v.patch_embd.bias", np.zeros(_V, np.float32))
    if family in {"llava", "gemma3", "qwen3vl"}:
        places = (_SIDE // _PATCH) ** 2
        w.add_tensor("v.position_embd.weight", rng.normal(0, 1, (places, _V)).astype(np.float32))
    if family == "llava":
        norm("v.pre_ln")
    if family == "pixtral":
        norm("v.pre_ln")
    else:
        norm("v.post_ln")
    for i in range(2):
        b = f"v.blk.{i}"
        if family == "qwen3vl":
            matrix(f"{b}.attn_qkv", 3 * _V, _V)
        else:
            for name in ("attn_q", "attn_k", "attn_v"):
                matrix(f"{b}.{name}", _V, _V)
        matrix(f"{b}.attn_out", _V, _V)
        norm(f"{b}.ln1")
        norm(f"{b}.ln2")
        matrix(f"{b}.ffn_up", _FF, _V)
        matrix(f"{b}.ffn_down", _V, _FF)
        if family in {"pixtral", "qwen2.5vl"}:
            matrix(f"{b}.ffn_gate", _FF, _V)
    match family:
        case "llava":
            matrix("mm.0", width, _V)
            matrix("mm.2", width, width)
        case "gemma3":
            w.add_uint32("clip.vision.projector.scale_factor", 2)
            weights = rng.normal(0, 0.2, (_V, width)).astype(np.float32)
            w.add_tensor("mm.input_projection.weight", weights)
            w.add_tensor("mm.soft_emb_norm.weight", np.ones(_V, np.float32))
        case "pixtral":
            matrix("mm.1", HIDDEN, _V)
            matrix("mm.2", width, HIDDEN)
            w.add_tensor("v.token_embd.img_break", rng.normal(0, 1, width).astype(np.float32))
        case _:
            matrix("mm.0", 4 * _V, 4 * _V)
            matrix("mm.2", width, 4 * _V)
    if family == "qwen2.5vl":
        w.add_uint32("clip.vision.n_wa_pattern", 2)
        w.add_uint32("clip.vision.window_size", 4 * _PATCH)
    if family == "qwen3vl":
        w.add_array("clip.vision.is_deepstack_layers", [True, False])
        norm("v.deepstack.0.norm", 4 * _V)
        matrix("v.deepstack.0.fc1", 4 * _V, 4 * _V)
        matrix("v.deepstack.0.fc2", width, 4 * _V)
    return written(w)


def drawn(seed: int = 0, width: int = 96, height: int = 64) -> Image.Image:
    """A picture of some shapes."""
    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(image)
    for _ in range(4):
        x, y, r = (int(n) for n in rng.integers(8, 48, 3))
        colour = tuple(int(n) for n in rng.integers(0, 256, 3))
        pen.ellipse((x, y, x + r, y + r), fill=colour)
    return image


def png(image: Image.Image | None = None, **save: object) -> bytes:
    """A picture as the bytes of a file; PNG unless ``format`` says otherwise."""
    buffer = io.BytesIO()
    options = {"format": "PNG", **save}
    (image or drawn()).save(buffer, **options)  # type: ignore[arg-type]
    return buffer.getvalue()
