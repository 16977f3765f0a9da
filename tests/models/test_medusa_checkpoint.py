"""Public Medusa checkpoints become drafts: the same heads, or one line that says why not."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import gguf_tools
import head_files
import numpy as np
import pytest

from localspec import Finished, Message, Options, Runtime, Sampling, cli
from localspec.core.errors import (
    DraftIncompatibleError,
    Interrupted,
    LocalspecError,
    ModelFileError,
    ModelNotFoundError,
    UsageError,
)
from localspec.core.interrupt import never
from localspec.llama.heads.tensors import mapped
from localspec.models.compat import heads
from localspec.models.compat.medusa_checkpoint import make
from localspec.models.gguf.header import read_header
from localspec.models.gguf.model_file import ModelFile
from localspec.models.gguf.safetensors import read_safetensors
from localspec.models.gguf.writer import Tensor, write_gguf

WIDTH = 64
VOCABULARY = len(gguf_tools.byte_vocabulary())
Numbers = dict[str, np.ndarray]


def checkpoint(
    count: int = 2, blocks: int = 1, *, outputs: bool = True, prefix: str = "", width: int = WIDTH
) -> Numbers:
    """Tensors as they are named in public."""
    rng, found = np.random.default_rng(2), {}
    for k in range(count):
        for j in range(blocks):
            weight = rng.normal(0, 1 / np.sqrt(width), (width, width)).astype(np.float32)
            found[f"{prefix}{k}.{j}.linear.weight"] = weight
            found[f"{prefix}{k}.{j}.linear.bias"] = rng.normal(0, 1, width).astype(np.float32)
        if outputs:
            found[f"{prefix}{k}.{blocks}.weight"] = rng.normal(0, 1, (VOCABULARY, width)).astype(
                np.float32
            )
    return found


def save(path: Path, tensors: Mapping[str, np.ndarray], dtype: str = "F16") -> Path:
    """A safetensors file."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    content = b""
    for name, numbers in tensors.items():
        if dtype == "BF16":
            raw = (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
        else:
            raw = numbers.astype({"F16": np.float16, "F32": np.float32}[dtype]).tobytes()
        offsets = [len(content), len(content) + len(raw)]
        header[name] = {"dtype": dtype, "shape": numbers.shape, "data_offsets": offsets}
        content += raw
    return raw_file(path, header, content)


def raw_file(path: Path, header: object, content: bytes = b"") -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content)
    return path


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gguf_tools.write_llama(tmp_path_factory.mktemp("target") / "t.gguf", width=WIDTH)


@pytest.mark.parametrize(("kind", "near"), [("f16", 2e-3), ("q8_0", 2e-2)])
@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("blocks", [1, 2])
def test_the_numbers_of_a_checkpoint_arrive(
    tmp_path: Path, target: Path, dtype: str, kind: str, near: float, blocks: int
) -> None:
    tensors = checkpoint(3, blocks, prefix="medusa_head.")
    source = save(tmp_path / "c.safetensors", tensors | {"lm_head.weight": np.ones((2, 2))}, dtype)
    where = tmp_path / "heads.gguf"
    make(target, source, where, kind=kind, cancelled=never)
    header = read_header(where)
    assert heads.kind(header) == "medusa"
    assert heads.head_problem(header, ModelFile(target).header) is None
    found = arrived(where)
    assert len(found) == len(tensors)
    rounded = 1e-2 if dtype == "BF16" else 0.0
    for k in range(3):
        for j in range(blocks):
            for part in ("weight", "bias"):
                wanted = tensors[f"medusa_head.{k}.{j}.linear.{part}"]
                assert found[f"medusa.{k}.res.{j}.{part}"].shape == wanted.shape
                np.testing.assert_allclose(
                    found[f"medusa.{k}.res.{j}.{part}"], wanted, atol=near, rtol=near + rounded
                )
        wanted = tensors[f"medusa_head.{k}.{blocks}.weight"]
        np.testing.assert_allclose(
            found[f"medusa.{k}.output.weight"], wanted, atol=near, rtol=near + rounded
        )


def arrived(where: Path) -> Numbers:
    """The numbers of a draft."""
    names = {tensor.name for tensor in read_header(where).tensors}
    return {name: weight.numbers() for name, weight in mapped(ModelFile(where), names).items()}


def vllm(count: int, blocks: int) -> Numbers:
    """The same heads as `checkpoint` under the names of vLLM."""
    renamed = {}
    for name, numbers in checkpoint(count, blocks).items():
        k, j, *rest = name.split(".")
        block = f"blocks.{k}.layers.{j}.{rest[-1]}"
        renamed[block if len(rest) == 2 else f"lm_heads.{k}.weight"] = numbers
    return {f"medusa_heads.{name}": numbers for name, numbers in renamed.items()}


@pytest.mark.parametrize("blocks", [1, 2])
def test_names_of_other_programs_are_the_same_heads(
    tmp_path: Path, target: Path, blocks: int
) -> None:
    found = []
    wrapped = {f"module.medusa_head.{k}": v for k, v in checkpoint(2, blocks).items()}
    plain = {f"module.{k}": v for k, v in checkpoint(2, blocks).items()}
    named = {"a": checkpoint(2, blocks), "b": vllm(2, blocks), "c": wrapped, "d": plain}
    for name, tensors in named.items():
        source = save(tmp_path / f"{name}.safetensors", tensors)
        make(target, source, tmp_path / f"{name}.gguf", kind="f16", cancelled=never)
        found.append((tmp_path / f"{name}.gguf").read_bytes())
    assert len({*found}) == 1


@pytest.mark.parametrize("tensors", [checkpoint(2, 2), vllm(2, 2)])
def test_heads_without_biases_have_biases_of_nothing(
    tmp_path: Path, target: Path, tensors: Numbers
) -> None:
    bare = {name: numbers for name, numbers in tensors.items() if not name.endswith(".bias")}
    where = tmp_path / "heads.gguf"
    make(target, save(tmp_path / "c.safetensors", bare), where, kind="f16", cancelled=never)
    assert heads.head_problem(read_header(where), ModelFile(target).header) is None
    biases = [numbers for name, numbers in arrived(where).items() if name.endswith(".bias")]
    assert len(biases) == 4
    assert not np.concatenate(biases).any()


def test_heads_are_found_in_a_whole_model_in_several_files(tmp_path: Path, target: Path) -> None:
    """Heads that were trained with their model (Medusa-2) are published so."""
    folder, tensors = tmp_path / "model", checkpoint(prefix="medusa_head.")
    folder.mkdir()
    names = list(tensors)
    places = {}
    for n, part in enumerate((names[:2], names[2:]), 1):
        file = f"model-0000{n}-of-00003.safetensors"
        save(folder / file, {name: tensors[name] for name in part} | {f"model.{n}": np.ones(3)})
        places |= dict.fromkeys([*part, f"model.{n}"], file)
    others = {"model.ids": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}
    raw_file(folder / "model-00003-of-00003.safetensors", others, bytes(8))
    places["model.ids"] = "model-00003-of-00003.safetensors"
    with pytest.raises(UsageError, match="has 3"):
        make(target, folder, tmp_path / "heads.gguf", kind="f16", cancelled=never)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    make(target, folder, tmp_path / "heads.gguf", kind="f16", cancelled=never)
    whole = save(tmp_path / "c.safetensors", tensors)
    make(target, whole, tmp_path / "whole.gguf", kind="f16", cancelled=never)
    assert (tmp_path / "heads.gguf").read_bytes() == (tmp_path / "whole.gguf").read_bytes()
    for bad in ("{", "[]", '{"weight_map": {"0.0.linear.weight": "../c.safetensors"}}'):
        index.write_text(bad)
        with pytest.raises(ModelFileError, match="does not say which file"):
            make(target, folder, tmp_path / "heads.gguf", kind="f16", cancelled=never)


def test_other_types_beside_the_heads_do_not_matter(tmp_path: Path, target: Path) -> None:
    source = save(tmp_path / "c.safetensors", checkpoint())
    content = source.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header, body = json.loads(content[8 : 8 + size]), content[8 + size :]
    ends = [len(body), len(body) + 8]
    header["model.ids"] = {"dtype": "I64", "shape": [1], "data_offsets": ends}
    header["model.nothing"] = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    raw_file(source, header, body + bytes(8))
    make(target, source, tmp_path / "heads.gguf", kind="f16", cancelled=never)
    assert "medusa.1.output.weight" in arrived(tmp_path / "heads.gguf")


def test_a_head_is_no_model_to_make_a_draft_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = str(head_files.write_eagle(tmp_path / "eagle.gguf"))
    source = str(save(tmp_path / "c.safetensors", checkpoint()))
    for flags in (["--medusa", source], ["--bits", "4"], []):
        assert cli.call(["make-draft", head, *flags]) == 7
        assert "eagle.gguf is a head (eagle3)" in capsys.readouterr().err


def test_heads_are_not_written_over_the_files_they_are_made_from(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = save(tmp_path / "c.safetensors", checkpoint())
    for where in (target, source):
        before = where.read_bytes()
        flags = ["--medusa", str(source), "-o", str(where), "--force"]
        assert cli.call(["make-draft", str(target), *flags]) == 2
        assert "is the file to read from" in capsys.readouterr().err
        assert where.read_bytes() == before


def test_the_draft_is_used_without_being_told_and_changes_no_text(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    save(folder / "medusa_lm_head.safetensors", checkpoint(outputs=False))
    where = tmp_path / "heads.gguf"
    code = cli.call(["make-draft", str(target), "--medusa", str(folder), "-o", str(where)])
    assert code == 0
    assert capsys.readouterr().out == f"{where}\n"
    replies = []
    for options in (
        Options(model=str(target), drafter=("off",)),
        Options(model=str(target), draft=str(where), draft_max=3),
    ):
        with Runtime.open(options) as runtime:
            bias = tuple((token, -100.0) for token in range(3))
            sampling = Sampling(temperature=0.7, logit_bias=bias)
            *_, last = runtime.reply(
                [Message("user", "abc")], sampling=sampling, seed=3, max_tokens=40
            )
            assert isinstance(last, Finished)
            replies.append(last.reply)
    assert replies[0].tokens == replies[1].tokens
    assert "medusa" in replies[1].stats.by_drafter


def _bytes(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _entry(offsets: list[int], shape: list[int], dtype: str = "F32") -> dict[str, object]:
    return {"0.0.linear.weight": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def _without(tensors: Numbers, name: str) -> Numbers:
    return {key: value for key, value in tensors.items() if key != name}


def _folder(path: Path, *names: str) -> Path:
    path.mkdir()
    for name in names:
        save(path / f"{name}.safetensors", checkpoint())
    return path


BAD: dict[str, tuple[Callable[[Path], Path], type[LocalspecError], str]] = {
    "a pickle": (
        lambda p: _bytes(p, pickle.dumps({"0.0.linear.weight": 1})),
        ModelFileError,
        "pickle",
    ),
    "a zipped pickle": (lambda p: _bytes(p, b"PK\x03\x04" + bytes(99)), ModelFileError, "pickle"),
    "nothing": (lambda p: p, ModelNotFoundError, "no checkpoint"),
    "an empty file": (lambda p: _bytes(p, b""), ModelFileError, "not a safetensors"),
    "a lying length": (lambda p: _bytes(p, b"\xff" * 64), ModelFileError, "not a safetensors"),
    "no JSON": (
        lambda p: _bytes(p, struct.pack("<Q", 4) + b"{,}}" + bytes(9)),
        ModelFileError,
        "not JSON",
    ),
    "a list": (lambda p: raw_file(p, [1, 2]), ModelFileError, "not JSON"),
    "no places": (lambda p: raw_file(p, {"0.0.linear.weight": {}}), ModelFileError, "where"),
    "negative places": (
        lambda p: raw_file(p, _entry([-4, 4], [2]), bytes(8)),
        ModelFileError,
        "where",
    ),
    "a short file": (lambda p: raw_file(p, _entry([0, 8], [2]), b""), ModelFileError, "cut short"),
    "a wrong size": (
        lambda p: raw_file(p, _entry([0, 8], [3]), bytes(8)),
        ModelFileError,
        "do not match its shape",
    ),
    "other types": (
        lambda p: raw_file(p, _entry([0, 8], [2], "F8_E4M3"), bytes(8)),
        ModelFileError,
        "F8_E4M3",
    ),
    "a single number": (
        lambda p: raw_file(
            p,
            {
                f"0.0.linear.{part}": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}
                for part in ("weight", "bias")
            },
            bytes(4),
        ),
        ModelFileError,
        "is 1, not 64x64",
    ),
    "no heads": (
        lambda p: save(p, {"lm_head.weight": np.ones((2, 2))}),
        ModelFileError,
        "holds no",
    ),
    "a missing bias": (
        lambda p: save(p, _without(checkpoint(), "1.0.linear.bias")),
        ModelFileError,
        "lacks 1.0.linear.bias",
    ),
    "a missing head": (
        lambda p: save(p, _without(checkpoint(3), "1.0.linear.weight")),
        ModelFileError,
        "lacks 1.0.linear.weight",
    ),
    "another width": (
        lambda p: save(p, checkpoint(width=96)),
        DraftIncompatibleError,
        "hidden size of 96, and t.gguf has 64",
    ),
    "another vocabulary": (
        lambda p: save(p, checkpoint() | {"0.1.weight": np.ones((99, WIDTH))}),
        DraftIncompatibleError,
        f"made for 99 tokens, and t.gguf has {VOCABULARY}",
    ),
    "an odd shape": (
        lambda p: save(p, checkpoint() | {"1.0.linear.bias": np.ones(65)}),
        ModelFileError,
        "res.0.bias of head 1",
    ),
    "numbers that are none": (
        lambda p: save(p, checkpoint() | {"1.0.linear.bias": np.full(WIDTH, np.nan)}),
        ModelFileError,
        "not finite",
    ),
    "an empty folder": (_folder, ModelNotFoundError, "no .safetensors"),
    "two files": (lambda p: _folder(p, "a", "b"), UsageError, "has 2 .safetensors files"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_used_is_told_in_one_line_and_nothing_is_left(
    tmp_path: Path, target: Path, what: str
) -> None:
    write, error, words = BAD[what]
    source = write(tmp_path / "c.safetensors")
    where = tmp_path / "heads.gguf"
    with pytest.raises(error, match=words) as caught:
        make(target, source, where, kind="f16", cancelled=never)
    assert "\n" not in str(caught.value)
    assert not [*tmp_path.glob("heads*")]


def test_an_interrupted_conversion_leaves_nothing(tmp_path: Path, target: Path) -> None:
    source = save(tmp_path / "c.safetensors", checkpoint())
    where = tmp_path / "heads.gguf"
    with pytest.raises(Interrupted):
        make(target, source, where, kind="f16", cancelled=lambda: True)
    assert not [*tmp_path.glob("heads*")]


def test_flags_that_do_not_go_together_are_refused(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags in (["--medusa", "x", "--bits", "4"], ["--type", "f16", "--bits", "4"]):
        assert cli.call(["make-draft", str(target), *flags]) == 2
        assert "--medusa" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, target: Path) -> None:
    source = save(tmp_path / "c.safetensors", checkpoint())
    with pytest.raises(UsageError, match="no folder"):
        make(target, source, tmp_path / "none" / "d.gguf", kind="f16", cancelled=never)


def test_an_odd_width_needs_f16(tmp_path: Path) -> None:
    odd = tmp_path / "odd.gguf"
    gguf_tools.write_llama(odd, width=80)
    source = save(tmp_path / "c.safetensors", checkpoint(width=80))
    with pytest.raises(UsageError, match="use f16"):
        make(odd, source, tmp_path / "d.gguf", kind="q8_0", cancelled=never)
    make(odd, source, tmp_path / "d.gguf", kind="f16", cancelled=never)
    assert heads.head_problem(read_header(tmp_path / "d.gguf"), ModelFile(odd).header) is None


def test_any_size_and_alignment_is_written_right(tmp_path: Path) -> None:
    parts = [b"1234", b"56789012"]
    tensors = [
        Tensor("a", (3,), 0, lambda: iter(parts)),
        Tensor("b", (2, 1), 1, lambda: iter([b"abcd"])),
    ]
    where = tmp_path / "x.gguf"
    with where.open("wb") as file:
        write_gguf(file, {"general.architecture": "medusa", "medusa.heads": 7}, tensors)
    header = read_header(where)
    assert header.of_model("heads") == 7
    assert header.end <= header.size
    found = mapped(ModelFile(where), {"a", "b"})
    assert found["a"].data.tobytes() == b"123456789012"
    assert found["b"].shape == (2, 1)
    assert found["b"].data.tobytes() == b"abcd"


def test_an_empty_checkpoint_is_readable(tmp_path: Path) -> None:
    assert read_safetensors(raw_file(tmp_path / "x.safetensors", {})) == {}
