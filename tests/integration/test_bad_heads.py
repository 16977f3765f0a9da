"""Heads that are not what they should be: told in one line, never an abort, and what nobody asked
for does not stop a run.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import gguf
import gguf_tools
import head_files
import numpy as np
import pytest
from replies import HELLO, last

from localspec import GREEDY, Options, Runtime, cli
from localspec.core.errors import DraftIncompatibleError, ModelFileError, OutOfMemoryError
from localspec.llama.heads.base import Head
from localspec.llama.model import Model
from localspec.models.catalog.resolve import resolve
from localspec.models.compat import heads
from localspec.models.gguf.model_file import ModelFile

Change = Callable[[np.ndarray], np.ndarray | None]


KINDS = {int: gguf.GGUFValueType.UINT32, str: gguf.GGUFValueType.STRING}


def altered(
    source: Path,
    goal: Path,
    *,
    keys: Mapping[str, object] | None = None,
    tensors: Mapping[str, Change] | None = None,
) -> Path:
    """A copy with other values of some keys (None leaves one out), more keys, and other tensors."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(goal, architecture)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value = (keys or {}).get(field.name, field.contents())
        if value is not None:
            sub = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, value, field.types[0], sub_type=sub)
    for key in (keys or {}).keys() - reader.fields.keys():
        writer.add_key_value(key, keys[key], KINDS[type(keys[key])])
    for tensor in reader.tensors:
        change = (tensors or {}).get(tensor.name)
        data = np.array(tensor.data) if change is None else change(np.array(tensor.data))
        if data is not None:
            writer.add_tensor(tensor.name, data)
    return gguf_tools.written(writer)


def cut(path: Path, goal: Path, kept: float = 0.7) -> Path:
    """The file without its end."""
    content = path.read_bytes()
    goal.write_bytes(content[: int(kept * len(content))])
    return goal


def to(index: int, value: int) -> Change:
    def change(data: np.ndarray) -> np.ndarray:
        data[index] = value
        return data

    return change


def gone(_: np.ndarray) -> None:
    return None


def halved(data: np.ndarray) -> np.ndarray:
    return data.astype(np.float16)


def as_type(kind: type) -> Change:
    return lambda data: data.astype(kind)


MORE = gguf_tools.byte_vocabulary(3)
TYPES = "tokenizer.ggml.token_type"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Targets and heads, each in a folder of its own."""
    folder = tmp_path_factory.mktemp("bad")
    for name in ("dense", "gemma", "heads", "carrying"):
        (folder / name).mkdir()
    gguf_tools.write_llama(folder / "dense" / "target.gguf", layers=4, seed=3, context=1024)
    head_files.write_gemma(folder / "gemma" / "target.gguf")
    head_files.write_eagle(folder / "heads" / "eagle.gguf")
    head_files.write_eagle(folder / "heads" / "own.gguf", own=True)
    head_files.write_eagle(folder / "heads" / "few.gguf", ids=[*range(3, 120)])
    head_files.write_dflash(folder / "heads" / "dflash.gguf")
    head_files.write_assistant(folder / "heads" / "assistant.gguf")
    head_files.write_medusa(folder / "heads" / "medusa.gguf")
    head_files.write_mtp(folder / "carrying" / "glm.gguf")
    head_files.write_chained(folder / "carrying" / "hy.gguf")
    return folder


ABORTING: dict[str, tuple[str, str, dict[str, object], dict[str, Change], str]] = {
    "no layers": ("dense", "eagle", {"eagle3.block_count": 0}, {}, "states 0 layers"),
    "many layers": ("dense", "eagle", {"eagle3.block_count": 600}, {}, "states 600 layers"),
    "unknown layers": (
        "dense",
        "dflash",
        {"dflash.block_count": None},
        {},
        "does not state how many layers",
    ),
    "no epsilon": (
        "dense",
        "eagle",
        {"eagle3.attention.layer_norm_rms_epsilon": float("nan")},
        {},
        "epsilon is nan",
    ),
    "other scaling of turns": (
        *("dense", "eagle", {"eagle3.rope.scaling.type": "spiral"}, {}),
        "its rope.scaling.type is 'spiral'",
    ),
    "more experts in use than there are": (
        *("dense", "eagle", {"eagle3.expert_count": 2, "eagle3.expert_used_count": 4}, {}),
        "it uses 4 of 2 experts",
    ),
    "states of another width": (
        *("dense", "eagle", {"eagle3.embedding_length_out": 32}, {}),
        "another width than the 64",
    ),
    "odd turns": (
        "dense",
        "eagle",
        {"eagle3.rope.dimension_count": 31},
        {},
        "rotates 31 dimensions",
    ),
    "wide turns": ("dense", "dflash", {"dflash.rope.dimension_count": 64}, {}, "that have 32"),
    "no turns": ("dense", "eagle", {"eagle3.rope.dimension_count": 0}, {}, "rotates 0 dimensions"),
    "norms of 16 bits": ("dense", "eagle", {}, {"output_norm.weight": halved}, "must be F32"),
    "a word beyond the vocabulary": ("dense", "few", {}, {"d2t": to(0, 999)}, "tokens 4 to 999"),
    "a negative word": ("dense", "few", {}, {"d2t": to(0, -5)}, "tokens -5 to 119"),
    "a word twice": ("dense", "few", {}, {"d2t": to(0, 4)}, "names a token twice"),
    "words and no logits": ("dense", "few", {}, {"output.weight": gone}, "lacks output.weight"),
    "more words than logits": (
        "dense",
        "few",
        {},
        {"d2t": lambda data: np.append(data, data[:1])},
        "logits for 117 tokens",
    ),
    "a matrix of whole numbers": (
        *("dense", "eagle", {}, {"fc.weight": as_type(np.int32)}),
        "fc.weight is I32, which cannot be computed with",
    ),
    "a matrix of 64 bits": (
        *("gemma", "assistant", {}, {"nextn.pre_projection.weight": as_type(np.float64)}),
        "nextn.pre_projection.weight is F64, which cannot be computed with",
    ),
    "a norm of whole numbers": (
        *("dense", "dflash", {}, {"output_norm.weight": as_type(np.int8)}),
        "output_norm.weight is I8; it must be F32",
    ),
    "embeddings of some tokens": (
        *("dense", "own", {}, {"token_embd.weight": lambda data: data[:100].copy()}),
        "embeddings of 100 tokens, and reads 259",
    ),
    "more tokens than the matrix that is borrowed": (
        *("dense", "eagle", {"tokenizer.ggml.tokens": MORE, TYPES: [1] * len(MORE)}, {}),
        "is for 259 tokens, and its own vocabulary has 262",
    ),
    "a block with more tokens than that": (
        *("dense", "dflash", {"tokenizer.ggml.tokens": MORE, TYPES: [1] * len(MORE)}, {}),
        "is for 259 tokens, and its own vocabulary has 262",
    ),
    "a word beyond its own vocabulary": (
        *("dense", "few", {"tokenizer.ggml.tokens": MORE[:200], TYPES: [1] * 200}),
        *({"d2t": to(0, 255)}, "tokens 4 to 255, and there are 200"),
    ),
    "narrow values": (
        "gemma",
        "assistant",
        {"gemma4-assistant.attention.value_length": 16},
        {},
        "values of 16 from a layer, and target.gguf caches 1 key heads of 32",
    ),
}


@pytest.mark.parametrize("what", ABORTING)
def test_what_llama_cpp_would_abort_on_is_told_in_one_line(
    made: Path, tmp_path: Path, what: str
) -> None:
    target, head, keys, tensors, words = ABORTING[what]
    bad = altered(made / "heads" / f"{head}.gguf", tmp_path / "h.gguf", keys=keys, tensors=tensors)
    options = Options(str(made / target / "target.gguf"), str(bad), draft_max=3)
    with pytest.raises((DraftIncompatibleError, ModelFileError), match=words) as caught:
        Runtime.open(options)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("what", ABORTING)
def test_beside_a_target_the_same_stops_nothing(made: Path, tmp_path: Path, what: str) -> None:
    target, head, keys, tensors, _ = ABORTING[what]
    shutil.copy(made / target / "target.gguf", tmp_path / "target.gguf")
    altered(made / "heads" / f"{head}.gguf", tmp_path / "h.gguf", keys=keys, tensors=tensors)
    with Runtime.open(Options(str(tmp_path / "target.gguf"), draft_max=3)) as runtime:
        assert last(runtime.reply(HELLO, sampling=GREEDY, max_tokens=5)).tokens


@pytest.mark.parametrize("name", ["blk.2.ffn_up.weight", "blk.2.ffn_down.weight"])
def test_a_layer_for_prediction_that_is_not_whole_is_left_alone(
    made: Path, tmp_path: Path, name: str
) -> None:
    hy = made / "carrying" / "hy.gguf"
    path = altered(hy, tmp_path / "hy.gguf", tensors={name: gone})
    assert f"lacks {name}" in (heads.mtp_problem(ModelFile(path).header) or "")


def test_a_layer_for_prediction_with_norms_of_16_bits_is_left_alone(
    made: Path, tmp_path: Path
) -> None:
    glm = made / "carrying" / "glm.gguf"
    bad = altered(glm, tmp_path / "glm.gguf", tensors={"blk.2.nextn.enorm.weight": halved})
    with Runtime.open(Options(str(bad), draft_max=3)) as runtime:
        assert any("enorm.weight is F16; it must be F32" in n for n in runtime.info.notices)
        assert last(runtime.reply(HELLO, sampling=GREEDY, max_tokens=5)).tokens


@pytest.mark.parametrize("kind", [np.int32, np.float64])
def test_a_layer_for_prediction_of_numbers_that_are_not_computed_with_is_left_alone(
    made: Path, tmp_path: Path, kind: type
) -> None:
    glm = made / "carrying" / "glm.gguf"
    bad = altered(glm, tmp_path / "glm.gguf", tensors={"blk.2.attn_q.weight": as_type(kind)})
    assert "which cannot be computed with" in (heads.mtp_problem(ModelFile(bad).header) or "")


def test_a_hybrid_target_whose_layer_was_left_out_runs_without_it(tmp_path: Path) -> None:
    """llama.cpp refuses such files of this architecture."""
    whole = head_files.write_hybrid(tmp_path / "whole.gguf", layers=2)
    theirs = {t.name: gone for t in gguf.GGUFReader(whole).tensors if t.name.startswith("blk.2.")}
    bare = altered(whole, tmp_path / "bare.gguf", tensors=theirs)
    replies = []
    for path in (bare, whole):
        with Runtime.open(Options(str(path), draft_max=3)) as runtime:
            replies.append(last(runtime.reply(HELLO, sampling=GREEDY, max_tokens=8)).tokens)
            notices = [n for n in runtime.info.notices if "states an MTP layer" in n]
            assert bool(notices) == (path == bare)
    assert replies[0] == replies[1]


@pytest.mark.parametrize("count", [9, 2**31 - 1])
def test_more_layers_for_prediction_than_layers_are_damage(
    made: Path, tmp_path: Path, count: int
) -> None:
    for name, arch in (("glm", "glm4moe"), ("hy", "hy_v3")):
        source = made / "carrying" / f"{name}.gguf"
        key = f"{arch}.nextn_predict_layers"
        path = altered(source, tmp_path / f"{name}.gguf", keys={key: count})
        with pytest.raises(ModelFileError, match=rf"states {count} of \d+ layers for prediction"):
            Runtime.open(Options(str(path)))


@pytest.mark.parametrize("head", ["eagle", "dflash", "medusa"])
def test_a_head_that_is_cut_short_is_an_error_only_where_it_was_named(
    made: Path, tmp_path: Path, head: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = shutil.copy(made / "dense" / "target.gguf", tmp_path / "target.gguf")
    bad = cut(made / "heads" / f"{head}.gguf", tmp_path / "head.gguf")
    with Runtime.open(Options(str(target), draft_max=3)) as runtime:
        assert any("cut short" in notice for notice in runtime.info.notices)
        assert any("drafting from the text instead" in notice for notice in runtime.info.notices)
        assert last(runtime.reply(HELLO, sampling=GREEDY, max_tokens=5)).tokens
    with pytest.raises(ModelFileError, match="cut short"):
        Runtime.open(Options(str(target), str(bad)))
    assert cli.call(["show", str(target), "-d", str(bad)]) == ModelFileError.exit_code
    assert "no: head.gguf is cut short" in capsys.readouterr().out


# -- detection ------------------------------------------------------------------------------------


def test_a_head_beside_a_target_is_found_whatever_it_is_called(made: Path, tmp_path: Path) -> None:
    target = shutil.copy(made / "dense" / "target.gguf", tmp_path / "target.gguf")
    shutil.copy(made / "dense" / "target.gguf", tmp_path / "target-eagle3.gguf")  # it says so
    assert resolve(str(target), None).draft is None
    head = shutil.copy(made / "heads" / "eagle.gguf", tmp_path / "readme.gguf")
    found = resolve(str(target), None)
    assert (found.draft, found.notices) == (ModelFile(head), ())
    assert resolve(str(target), "none").draft is None


def test_of_several_heads_the_one_that_drafts_is_named(made: Path, tmp_path: Path) -> None:
    target = shutil.copy(made / "dense" / "target.gguf", tmp_path / "target.gguf")
    for name in ("medusa", "dflash", "eagle"):
        shutil.copy(made / "heads" / f"{name}.gguf", tmp_path / f"{name}.gguf")
    with Runtime.open(Options(str(target), draft_max=3)) as runtime:
        assert runtime.info.draft == str(tmp_path / "eagle.gguf")
        assert (
            "of the heads next to target.gguf, eagle.gguf drafts, not dflash.gguf, medusa.gguf; "
            "--draft FILE takes another"
        ) in runtime.info.notices


def test_layers_beside_a_target_with_more_layers_than_theirs_are_refused(tmp_path: Path) -> None:
    two = head_files.write_mtp(tmp_path / "two.gguf", layers=2)
    three = head_files.write_mtp(tmp_path / "three.gguf", layers=3)
    head_files.split(two, tmp_path / "trunk.gguf", tmp_path / "beside.gguf")
    head = ModelFile(tmp_path / "beside.gguf").header
    for path, trouble in ((three, "a model of 2 layers, and three.gguf has 3"), (two, None)):
        found = heads.head_problem(head, ModelFile(path).header)
        assert found == (trouble and f"it was made for {trouble}")


def test_inputs_of_layers_with_several_streams_are_not_asked_for(made: Path) -> None:
    target = ModelFile(made / "dense" / "target.gguf").header
    facts = {key.replace("llama.", "qwen4exp."): v for key, v in target.metadata.items()}
    facts["general.architecture"] = "qwen4exp"
    head = ModelFile(made / "heads" / "eagle.gguf").header
    for streams, told in ((1, None), (4, "its layers pass on 4 streams")):
        facts["qwen4exp.hyper_connection.count"] = streams
        found = heads.head_problem(head, replace(target, metadata={**facts}))
        assert found is None if told is None else told in (found or "")


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A target, and a head that was made for a wider one."""
    shutil.copy(made / "dense" / "target.gguf", tmp_path / "target.gguf")
    head_files.write_eagle(tmp_path / "eagle3-target.gguf", target_width=96, own=True)
    return tmp_path


def test_a_head_for_another_target_is_refused_by_name_and_numbers_and_the_text_drafts(
    folder: Path,
) -> None:
    with Runtime.open(Options(str(folder / "target.gguf"), draft_max=3)) as runtime:
        (said,) = (n for n in runtime.info.notices if "next to" in n)
        assert said.startswith("eagle3-target.gguf next to target.gguf cannot draft for it")
        assert "made for a hidden size of 96, and target.gguf has 64" in said
        assert last(runtime.reply(HELLO, sampling=GREEDY, max_tokens=5)).tokens
        assert runtime.info.drafters == ("suffix",)


def test_nothing_is_said_of_heads_that_another_model_of_the_folder_may_be_meant_for(
    folder: Path,
) -> None:
    gguf_tools.write_llama(folder / "wider.gguf", width=96)
    assert resolve(str(folder / "target.gguf"), None).notices == ()


def test_a_folder_stands_for_the_only_model_in_it(folder: Path) -> None:
    assert resolve(str(folder), None).target.path == folder / "target.gguf"
    gguf_tools.write_llama(folder / "wider.gguf", width=96)
    with pytest.raises(ModelFileError, match=r"is a directory; give a \.gguf file in it"):
        Runtime.open(Options(str(folder)))


def test_any_file_of_a_model_in_several_stands_for_it(tmp_path: Path) -> None:
    first, second = (tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2))
    gguf_tools.write_llama(first)
    second.write_bytes(b"")
    assert resolve(str(second), None).target.path == first


def test_a_link_to_a_target_finds_the_heads_beside_it_after_those_beside_the_link(
    folder: Path,
) -> None:
    fits = head_files.write_eagle(folder / "head.gguf")
    elsewhere = folder / "links"
    elsewhere.mkdir()
    link = elsewhere / "mine.gguf"
    link.symlink_to(folder / "target.gguf")
    assert resolve(str(link), None).draft == ModelFile(fits)
    nearer = head_files.write_eagle(elsewhere / "nearer.gguf")
    assert resolve(str(link), None).draft == ModelFile(nearer)


def test_a_head_is_shown_as_one(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.call(["show", str(made / "heads" / "assistant.gguf")]) == 0
    said = capsys.readouterr().out
    assert "kind      mtp: drafts for the model it was made for, cannot run alone" in said
    assert "draft  " not in said  # not what lies beside it
    promised = head_files.write_mtp(tmp_path / "promised.gguf", block=False)
    assert cli.call(["show", str(promised)]) == 0
    assert "states an MTP layer" in capsys.readouterr().out


def test_the_layer_of_the_target_drafts_though_another_head_is_named(made: Path) -> None:
    """Each reads other states of the target."""
    eagle, glm = made / "heads" / "eagle.gguf", made / "carrying" / "glm.gguf"
    options = Options(str(glm), str(eagle), drafter=("mtp",), draft_max=3)
    with Runtime.open(options) as runtime:
        plain, drafted = (
            last(runtime.reply(HELLO, sampling=GREEDY, max_tokens=30, draft=draft))
            for draft in (False, True)
        )
    assert drafted.tokens == plain.tokens
    assert drafted.stats.by_drafter["mtp"].drafted


def test_of_several_heads_of_a_kind_the_one_called_like_the_target_drafts(
    made: Path, tmp_path: Path
) -> None:
    for name in ("model-9b.gguf", "model-4b.gguf"):
        target = shutil.copy(made / "dense" / "target.gguf", tmp_path / name)
        shutil.copy(made / "heads" / "eagle.gguf", tmp_path / f"{target.stem}-head.gguf")
    for name in ("model-9b", "model-4b"):
        found = resolve(str(tmp_path / f"{name}.gguf"), None)
        assert found.draft == ModelFile(tmp_path / f"{name}-head.gguf")


# -- room -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False])
def test_without_room_for_the_head_the_text_drafts_and_it_is_said(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    target = shutil.copy(made / "dense" / "target.gguf", tmp_path / "target.gguf")
    head = shutil.copy(made / "heads" / "eagle.gguf", tmp_path / "head.gguf")

    def refused(*_: object, **__: object) -> None:
        raise OutOfMemoryError("no context of 1024 tokens for head.gguf: failed; try less")

    monkeypatch.setattr(Head, "__init__", refused)
    options = Options(str(target), str(head) if named else None, draft_max=3)
    with Runtime.open(options) as runtime:
        (notice,) = (n for n in runtime.info.notices if "does not fit" in n)
        assert notice.startswith("the eagle3 head does not fit: no context of 1024 tokens")
        assert notice.endswith("drafting from the text instead")
        assert runtime.info.draft is None
        loaded = [part for part in runtime._pair.parts.loaded if isinstance(part, Model)]
        assert [model.path for model in loaded] == [target]  # nothing of the head stays
        said = last(runtime.reply(HELLO, sampling=GREEDY, max_tokens=20))
    assert set(said.stats.by_drafter) <= {"suffix"}
    for insisting in ({"require_draft": True}, {"drafter": ("eagle3",)}):
        with pytest.raises(OutOfMemoryError, match=r"head\.gguf"):
            Runtime.open(Options(str(target), str(head), **insisting))


def test_a_head_that_no_memory_could_hold_is_planned_without(made: Path, tmp_path: Path) -> None:
    target = shutil.copy(made / "dense" / "target.gguf", tmp_path / "target.gguf")
    key = "eagle3.attention.head_count_kv"
    vast = altered(made / "heads" / "eagle.gguf", tmp_path / "head.gguf", keys={key: 2**31 - 1})
    for draft in (None, str(vast)):
        with Runtime.open(Options(str(target), draft, draft_max=3)) as runtime:
            assert any("does not fit next to" in notice for notice in runtime.info.notices)
    with pytest.raises(OutOfMemoryError):
        Runtime.open(Options(str(target), str(vast), require_draft=True))


def test_a_head_trained_for_less_than_the_context_drafts_and_it_is_said(
    made: Path, tmp_path: Path
) -> None:
    target = made / "dense" / "target.gguf"
    key = {"eagle3.context_length": 64}
    short = altered(made / "heads" / "eagle.gguf", tmp_path / "short.gguf", keys=key)
    with Runtime.open(Options(str(target), str(short), draft_max=3, context=512)) as runtime:
        assert (
            "short.gguf was trained for 64 tokens, and the context has 512: beyond that fewer of "
            "its drafts may be accepted"
        ) in runtime.info.notices
        plain, drafted = (
            last(runtime.reply(HELLO, sampling=GREEDY, max_tokens=150, draft=draft))
            for draft in (False, True)
        )
    assert drafted.tokens == plain.tokens
    assert drafted.stats.by_drafter["eagle3"].drafted
    with Runtime.open(Options(str(target), str(short), context=64)) as runtime:
        assert not [notice for notice in runtime.info.notices if "trained for" in notice]


def test_errors_are_one_line_with_their_codes(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, eagle = str(made / "dense" / "target.gguf"), str(made / "heads" / "eagle.gguf")
    wide = str(head_files.write_eagle(tmp_path / "wide.gguf", target_width=128))
    short = str(cut(Path(eagle), tmp_path / "cut.gguf"))
    for command in (["run", "x", "-m"], ["verify"], ["bench"], ["chat"]):
        for code, rest in (
            (6, [target, "-d", wide]),
            (7, [target, "-d", short]),
            (3, [target, "-d", str(tmp_path / "none.gguf")]),
            (7, [eagle]),
            (7, [eagle, "-d", target]),
            (6, [target, "--drafter", "mtp"]),
            (6, [target, "-d", eagle, "--drafter", "medusa"]),
        ):
            assert cli.call([*command, *rest]) == code, (command, rest)
            said = capsys.readouterr().err.strip().splitlines()
            assert len(said) == 1, said
            assert said[0].startswith("localspec: ")
