"""Damaged model files: GGUF whole, in shards and with heads, its header over HTTP, safetensors."""

from __future__ import annotations

import functools
import json
import struct
import tempfile
from pathlib import Path

from faults import entries, mutations
from faults.entries import command, fresh, outcome
from faults.mutations import Chance


def small_gguf() -> bytes:
    """A header with all kinds of values, and tensors of a llama with a vocabulary of 300."""
    words = [b"<s>", b"</s>", *(b"<0x%02X>" % i for i in range(256))]
    words += [bytes([97 + i // 26, 97 + i % 26]) for i in range(42)]
    text = lambda raw: struct.pack("<Q", len(raw)) + raw  # noqa: E731 - a line is enough
    metadata: list[tuple[bytes, int, bytes]] = [
        (b"general.architecture", 8, text(b"llama")),
        (b"general.name", 8, text(b"fuzz")),
        (b"general.alignment", 4, struct.pack("<I", 32)),
        *(
            (b"llama." + name, 4, struct.pack("<I", value))
            for name, value in (
                (b"context_length", 512),
                (b"embedding_length", 64),
                (b"block_count", 2),
                (b"feed_forward_length", 128),
                (b"attention.head_count", 2),
                (b"rope.dimension_count", 32),
            )
        ),
        (b"llama.attention.head_count_kv", 9, struct.pack("<IQ2i", 5, 2, 1, 1)),
        (b"llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
        (b"tokenizer.ggml.model", 8, text(b"llama")),
        (b"tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 300) + b"".join(map(text, words))),
        (b"tokenizer.ggml.scores", 9, struct.pack("<IQ300f", 6, 300, *([0.0] * 300))),
        (
            b"tokenizer.ggml.token_type",
            9,
            struct.pack("<IQ300i", 5, 300, 3, 3, *([6] * 256 + [1] * 42)),
        ),
        (b"tokenizer.ggml.bos_token_id", 4, struct.pack("<I", 0)),
        (b"tokenizer.ggml.eos_token_id", 4, struct.pack("<I", 1)),
        (b"tokenizer.ggml.add_bos_token", 7, b"\x01"),
        (
            b"tokenizer.chat_template",
            8,
            text(b"{% for m in messages %}{{ m }}{% endfor %}"),
        ),
    ]
    shapes: list[tuple[bytes, tuple[int, ...]]] = [(b"token_embd.weight", (64, 300))]
    shapes.append((b"output_norm.weight", (64,)))
    for i in range(2):
        shapes += [
            (b"blk.%d.%s.weight" % (i, name), shape)
            for name, shape in (
                (b"attn_norm", (64,)),
                (b"ffn_norm", (64,)),
                (b"attn_q", (64, 64)),
                (b"attn_k", (64, 32)),
                (b"attn_v", (64, 32)),
                (b"attn_output", (64, 64)),
                (b"ffn_gate", (64, 128)),
                (b"ffn_up", (64, 128)),
                (b"ffn_down", (128, 64)),
            )
        ]
    raw = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(metadata)))
    for key, kind, value in metadata:
        raw += text(key) + struct.pack("<I", kind) + value
    offset = 0
    for name, shape in shapes:
        raw += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        raw += struct.pack("<IQ", 0, offset)
        size = 4
        for n in shape:
            size *= n
        offset += -(-size // 32) * 32
    raw = raw.ljust(-(-len(raw) // 32) * 32, b"\0")
    return bytes(raw) + b"\0" * offset


_GGUF = small_gguf()
_HEADER_BYTES = 12_000


def gguf(chance: Chance, folder: Path) -> str | None:
    """A model file, as `show` reads it, alone or as a draft."""
    fresh(folder)
    path = folder / "model.gguf"
    head = mutations.in_bytes(_GGUF[:_HEADER_BYTES], chance)
    path.write_bytes(head + _GGUF[_HEADER_BYTES:])
    words = ["show", str(path), "--json", "--offline"]
    if chance.random() < 0.3:
        (folder / "draft.gguf").write_bytes(_GGUF)
        words += ["--draft", str(folder / "draft.gguf")]
    return command(*words)


HEADS = ("medusa", "eagle3", "dflash", "assistant")


@functools.cache
def pair(kind: str) -> tuple[bytes, bytes]:
    """The files of a target and of a head for it."""
    import gguf_tools
    import head_files

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        head = folder / "head.gguf"
        if kind == "assistant":
            target = head_files.write_gemma(folder / "target.gguf")
            head_files.write_assistant(head)
        else:
            target = gguf_tools.write_llama(folder / "target.gguf", layers=4, seed=3)
            write = {
                "medusa": head_files.write_medusa,
                "eagle3": head_files.write_eagle,
                "dflash": head_files.write_dflash,
            }[kind]
            write(head)
        return target.read_bytes(), head.read_bytes()


def heads(chance: Chance, folder: Path) -> str | None:
    """A damaged head, which `show` looks at as the draft of a target."""
    fresh(folder)
    target, head = pair(chance.choice(HEADS))
    (folder / "target.gguf").write_bytes(target)
    (folder / "head.gguf").write_bytes(mutations.in_bytes(head, chance))
    words = ["show", str(folder / "target.gguf"), "--draft", str(folder / "head.gguf")]
    return command(*words, "--json", "--offline")


@functools.cache
def _split(seed: int) -> tuple[bytes, ...]:
    """A model in three files."""
    import gguf
    import gguf_tools

    with tempfile.TemporaryDirectory() as name:
        whole = gguf_tools.write_llama(Path(name) / "whole.gguf", layers=3, seed=seed)
        reader = gguf.GGUFReader(whole)
        found = []
        for number in range(3):
            path = Path(name) / f"part-{number}.gguf"
            writer = gguf.GGUFWriter(path, "llama")
            for field in reader.fields.values():
                if number or field.name.startswith("GGUF.") or field.name == "general.architecture":
                    continue
                sub = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
                writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=sub)
            writer.add_uint16("split.no", number)
            writer.add_uint16("split.count", 3)
            writer.add_int32("split.tensors.count", len(reader.tensors))
            for i, tensor in enumerate(reader.tensors):
                if i % 3 == number:
                    writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            gguf_tools.written(writer)
            found.append(path.read_bytes())
        return tuple(found)


def shards(chance: Chance, folder: Path) -> str | None:
    """A model in several files: one missing, cut, twice, of another model, or damaged."""
    fresh(folder)
    parts: list[bytes | None] = [*_split(3)]
    other = _split(5)
    for _ in range(chance.choice((1, 1, 2))):
        at, kind = chance.randrange(3), chance.randrange(6)
        change: bytes | None = None
        if kind == 0:
            name = "is missing"
        elif kind == 1:
            name, change = "is another one of the same", parts[chance.randrange(3)]
        elif kind == 2:
            name, change = "is of another model", other[chance.randrange(3)]
        elif kind == 3:
            name, change = "is empty", b""
        else:
            name, change = "is damaged", mutations.in_bytes(parts[at] or b"", chance)
        if chance.makes(f"shard {at + 1} {name}"):
            parts[at] = change
    for number, raw in enumerate(parts, 1):
        if raw is not None:
            (folder / f"model-{number:05d}-of-00003.gguf").write_bytes(raw)
    first = str(folder / "model-00001-of-00003.gguf")
    wrong = command("show", first, "--json", "--offline")
    # What the header lets pass, llama.cpp reads: in a process of its own, as `run` does.
    if wrong or not entries.is_real():
        return wrong
    return command("run", "-m", first, "--raw", "a", "-n", "2", "--threads", "1", "--ctx", "128")


def native(chance: Chance, folder: Path) -> str | None:
    """A model file whose header passes our look at it, opened by llama.cpp; not one of `SEARCHES`,
    since llama.cpp may abort: what is found here is to be recognised before.
    """
    from localspec.llama.model import Model
    from localspec.models.gguf.model_file import ModelFile
    from localspec.models.memory.fit import fit_files
    from localspec.models.memory.planner import Wishes

    path = folder / "model.gguf"
    head = mutations.in_bytes(_GGUF[:_HEADER_BYTES], chance)
    path.write_bytes(head + _GGUF[_HEADER_BYTES:])

    def read() -> None:
        fit_files(ModelFile(path), None, Wishes())
        model = Model(path, gpu_layers=0)
        try:
            for token in model.tokenize("a b\n", special=True, bos=model.adds_bos):
                model.piece(token)
        finally:
            model.close()

    return outcome(read)


def header_over_http(chance: Chance, _: Path) -> str | None:
    """A header through a function that sends too little, too much, or something else."""
    from localspec.models.compat.header_vocabulary import (
        HeaderVocabulary,
        end_tokens,
        require_text_model,
    )
    from localspec.models.gguf.header import parse_header

    raw = mutations.in_bytes(_GGUF[:_HEADER_BYTES], chance)
    size = chance.choice((len(raw), len(_GGUF), 1 << 40, 0, 3))

    def fetch(start: int, end: int) -> bytes:
        kind = chance.randrange(20)
        if kind == 0:
            return raw[start : start + (end - start) // 2]
        if kind == 1:
            return raw[:end]
        if kind == 2:
            return chance.randbytes(min(end - start, 1 << 20))
        return raw[start:end].ljust(end - start if end - start < 1 << 26 else 0, b"\0")

    def read() -> None:
        header = parse_header(fetch, size, "model.gguf")
        require_text_model(header)
        assert HeaderVocabulary(header).special_ids
        end_tokens(header)

    return outcome(read)


def safetensors(chance: Chance, folder: Path) -> str | None:
    """A checkpoint, and the numbers of its tensors."""
    from localspec.models.gguf.safetensors import read_safetensors

    tensors = {
        "medusa_head.0.0.linear.weight": {
            "dtype": "F32",
            "shape": [4, 8],
            "data_offsets": [0, 128],
        },
        "b": {"dtype": "BF16", "shape": [16], "data_offsets": [128, 160]},
        "__metadata__": {"format": "pt"},
    }
    head = mutations.in_json(json.dumps(tensors).encode(), chance)
    length = len(head) if chance.random() < 0.9 else chance.choice(mutations.NUMBERS)
    raw = struct.pack("<Q", length & ((1 << 64) - 1)) + head + chance.randbytes(160)
    if chance.random() < 0.2:
        raw = mutations.in_bytes(raw, chance)
    path = folder / "model.safetensors"
    path.write_bytes(raw)

    def read() -> None:
        for storage in read_safetensors(path).values():
            if storage.shape:
                storage.rows(0, min(2, storage.shape[0]))

    if entries.is_real():
        fresh(folder)
        output = str(folder / "made.gguf")
        return command("make-draft", "demo", "--medusa", str(path), "-o", output)
    return outcome(read)
