"""Small random GGUF files of models that hear, with their projectors, and sounds."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import gguf
import numpy as np
from gguf_tools import write_llama, written
from head_files import WIDTH
from picture_files import Seeing

FAMILIES = ("ultravox", "qwen2a")
_E, _FF, _MEL, _STACK, _HIDDEN = 32, 48, 16, 4, 64
_PLACES = 1500
"""Of the frames of 30 seconds. What is stacked must divide them: llama.cpp counts otherwise."""
_AROUND = {"qwen2a": ("<|audio_bos|>", "<|audio_eos|>")}


def write_hearing(folder: Path, family: str, *, seed: int = 0, context: int = 4096) -> Seeing:
    """A random model of a family, and its projector beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    model = write_llama(
        folder / f"{family}.gguf",
        seed=seed,
        width=WIDTH,
        context=context,
        controls=_AROUND.get(family, ()),
    )
    return Seeing(model, _projector(folder / f"mmproj-{family}.gguf", family, seed + 1))


def _projector(  # noqa: C901 - one line a key or tensor
    path: Path, family: str, seed: int
) -> Path:
    rng, w = np.random.default_rng(seed), gguf.GGUFWriter(path, "clip")
    w.add_string("clip.projector_type", family)
    w.add_bool("clip.has_audio_encoder", True)
    numbers = {
        "embedding_length": _E,
        "feed_forward_length": _FF,
        "block_count": 2,
        "projection_dim": WIDTH,
        "attention.head_count": 2,
        "num_mel_bins": _MEL,
        "projector.stack_factor": _STACK,
    }
    for key, value in numbers.items():
        if family == "ultravox" or not key.startswith("projector"):
            w.add_uint32(f"clip.audio.{key}", value)
    w.add_float32("clip.audio.attention.layer_norm_epsilon", 1e-5)

    def tensor(name: str, *shape: int, size: float = 1.0) -> None:
        weights = rng.normal(0, size / np.sqrt(np.prod(shape[1:])), shape)
        w.add_tensor(name, weights.astype(np.float32))

    def matrix(name: str, out: int, into: int, *, bias: bool = True) -> None:
        tensor(f"{name}.weight", out, into)
        if bias:
            w.add_tensor(f"{name}.bias", np.zeros(out, np.float32))

    def norm(name: str, n: int = _E, *, bias: bool = True) -> None:
        w.add_tensor(f"{name}.weight", np.ones(n, np.float32))
        if bias:
            w.add_tensor(f"{name}.bias", np.zeros(n, np.float32))

    for number, into in ((1, _MEL), (2, _E)):
        tensor(f"a.conv1d.{number}.weight", _E, into, 3, size=4)
        w.add_tensor(f"a.conv1d.{number}.bias", np.zeros((_E, 1), np.float32))
    tensor("a.position_embd.weight", _PLACES, _E)
    norm("a.post_ln")
    for i in range(2):
        b = f"a.blk.{i}"
        for name in ("attn_q", "attn_v", "attn_out"):
            matrix(f"{b}.{name}", _E, _E)
        matrix(f"{b}.attn_k", _E, _E, bias=False)
        norm(f"{b}.ln1")
        norm(f"{b}.ln2")
        matrix(f"{b}.ffn_up", _FF, _E)
        matrix(f"{b}.ffn_down", _E, _FF)
    if family == "ultravox":
        matrix("mm.a.mlp.1", 2 * _HIDDEN, _STACK * _E, bias=False)
        matrix("mm.a.mlp.2", WIDTH, _HIDDEN, bias=False)
        norm("mm.a.norm_pre", _STACK * _E, bias=False)
        norm("mm.a.norm_mid", _HIDDEN, bias=False)
    else:
        matrix("mm.a.fc", WIDTH, _E)
    return written(w)


def wav(seconds: float = 1.0, pitch: float = 440.0, rate: int = 22_050, channels: int = 2) -> bytes:
    """A tone as the bytes of a WAV file."""
    time = np.arange(int(seconds * rate)) / rate
    tone = (np.sin(2 * np.pi * pitch * time) * 12_000).astype("<i2")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.repeat(tone, channels).tobytes())
    return buffer.getvalue()
