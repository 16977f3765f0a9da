"""Models that see: positions, drafts, caches and batches give what plain decoding alone gives."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import picture_files
import pytest
from head_pairs import write_pairs
from picture_files import FAMILIES, KINDS, Seeing, drawn, png, write_seeing
from picture_reference import Part, Reference, Shown
from shared_encoders import SharedModels, shared_models

from localspec import Message, Notice, Options, ReplyRequest, Runtime
from localspec.core import media_rows
from localspec.core.errors import LocalspecError, MediaError, ModelNotFoundError, UsageError
from localspec.core.events import Finished, Reply
from localspec.core.interrupt import Interrupt
from localspec.core.picture import Picture
from localspec.core.sampling_params import Sampling
from localspec.core.target import Work
from localspec.core.values import no_draft
from localspec.llama import projector
from localspec.llama.encoder_child import _BREAK, _repair_breaks
from localspec.llama.heads.tensors import mapped
from localspec.models.catalog.projectors import find_projector, why_useless
from localspec.models.gguf.header import read_opening
from localspec.models.gguf.model_file import ModelFile
from localspec.prefix_cache.files import KvStore

pytestmark = pytest.mark.usefixtures("mtmd")
GREEDY, WILD = Sampling(temperature=0), Sampling(temperature=1.5)
ONE, OTHER = png(), png(drawn(7, 64, 120))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedModels]:
    """See `shared_encoders` for why they can be shared."""
    with shared_models(tmp_path_factory.mktemp("models"), write_seeing) as made:
        yield made


@pytest.fixture(params=FAMILIES)
def seeing(
    request: pytest.FixtureRequest, models: SharedModels, monkeypatch: pytest.MonkeyPatch
) -> Seeing:
    monkeypatch.setattr(projector, "EncoderProcess", models.process)
    return models.of(request.param)


each_kind = pytest.mark.parametrize("seeing", KINDS, indirect=True)
"""For what does not depend on the encoder."""


def opened(seeing: Seeing, **options: object) -> Runtime:
    chosen = {"draft": "none", "remember": False, **options}
    return Runtime.open(Options(model=str(seeing.model), **chosen))  # type: ignore[arg-type]


def user(text: str, *pictures: tuple[bytes, int]) -> Message:
    placed = tuple(Picture(data=data, at=at) for data, at in pictures)
    return Message("user", text, pictures=placed)


LAYOUTS = {
    "first": (user("What is this?", (ONE, 0)),),
    "in the middle": (user("I saw this, and you?", (ONE, 11)),),
    "several": (user("Compare this to that.", (ONE, 0), (OTHER, 13)),),
    "twice the same, side by side": (user("Equal?", (ONE, 0), (ONE, 0)),),
    "in an earlier turn": (
        user("What is this?", (OTHER, 0)),
        Message("assistant", "A picture."),
        user("And this?", (ONE, 4)),
    ),
}


def asked(messages: tuple[Message, ...], **fields: object) -> ReplyRequest:
    return ReplyRequest(messages, seed=5, max_tokens=24, **fields)  # type: ignore[arg-type]


def parts_of(runtime: Runtime, tokens: list[int]) -> Iterator[Part]:
    pictures = runtime.pair.target.pictures.projector
    assert pictures is not None
    for start, end, picture in media_rows.runs(tokens):
        if not picture:
            yield tokens[start:end]
            continue
        piece = pictures.piece(tokens[start:end])
        places = piece.places(0)
        yield Shown(piece.embeddings(), (1 + int(places[2].max()), 1 + int(places[1].max())))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llava", "gemma3", "qwen2vl", "qwen2.5vl"])
def test_logits_are_those_of_an_independent_computation(family: str, tmp_path: Path) -> None:
    """Positions in one and in three dimensions, and attention that is not causal in a picture."""
    seeing = write_seeing(tmp_path / "model", family)
    reference = Reference(seeing.model)
    with opened(seeing, kv_type="f32") as runtime:
        target = runtime.pair.target
        for layout, messages in LAYOUTS.items():
            tokens = runtime.encode(messages)
            target.truncate(0, 0)
            target.read(0, tokens[:-1])
            target.audit(0)
            assert target.length(0) == len(tokens) - 1
            (scores,) = target.score([Work(0, tokens[-1], no_draft("test"))])
            parts = [*parts_of(runtime, tokens)]
            wanted = reference.logits(parts)
            error = np.abs(scores.logits[0] - wanted).max()
            assert error < 0.02, layout  # llama.cpp's kernels round attention
            if family != "llava":  # whose pictures are like text
                mistaken = reference.logits(parts, mistaken=True)
                assert np.abs(mistaken - wanted).max() > 5 * error, layout


@pytest.mark.slow
def test_drafted_replies_are_the_plain_ones(seeing: Seeing, tmp_path: Path) -> None:
    """A draft model that cannot see, and drafts from the text."""
    draft = picture_files.write_seeing(tmp_path / "draft", seeing.model.stem).model
    with opened(seeing, draft=str(draft), draft_max=4, drafter="suffix,model") as runtime:
        for case in itertools.product(LAYOUTS, (GREEDY, WILD)):
            layout, sampling = case
            request = asked(LAYOUTS[layout], sampling=sampling)
            runtime.forget()
            plain = runtime.answer(dataclasses.replace(request, draft=False))
            runtime.forget()
            drafted = runtime.answer(request)
            assert drafted.tokens == plain.tokens, case
            assert drafted.stats.drafted > 0, case
            if sampling is GREEDY:  # the draft has the target's weights, and not its eyes
                assert drafted.stats.accepted > 0, case


def test_what_is_copied_never_has_rows(tmp_path: Path) -> None:
    """The text before one picture comes again before the other: what followed it were rows."""
    seeing = write_seeing(tmp_path / "model", "llava")
    with opened(seeing, draft_max=8, drafter="suffix") as runtime:
        text = "abcabcabc"
        plain = runtime.answer(asked((user(text, (ONE, 3), (ONE, 6)),), draft=False))
        drafted = runtime.answer(asked((user(text, (ONE, 3), (ONE, 6)),)))
        assert drafted.tokens == plain.tokens
        assert min(drafted.tokens) >= 0


@each_kind
def test_a_picture_is_encoded_once(seeing: Seeing, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(seeing) as runtime:
        runtime.pair.sight.encoder(lambda _: None)
        encoder = runtime.pair.target.pictures.projector
        assert encoder is not None
        encoded: list[int] = []
        encode = encoder.encode

        def counted(chunk: object, rows: int) -> object:
            encoded.append(rows)
            return encode(chunk, rows)

        monkeypatch.setattr(encoder, "encode", counted)
        first = asked((user("What is this?", (ONE, 0)),), sampling=GREEDY)
        said = runtime.answer(first)
        assert len(encoded) == 1
        later = (*first.messages, Message("assistant", said.text), user("And now?"))
        reply = runtime.answer(asked(later, sampling=GREEDY))
        rows = sum(map(media_rows.is_row, runtime.encode(later)))
        assert reply.stats.cached_tokens > rows  # not even read again
        runtime.forget()
        again = runtime.answer(first)
        assert again.stats.cached_tokens == 0
        assert again.tokens == said.tokens
        assert len(encoded) == 1


@each_kind
def test_another_picture_is_not_the_cached_one(seeing: Seeing) -> None:
    with opened(seeing, kv_type="f32") as runtime:
        one = runtime.answer(asked((user("What is this?", (ONE, 0)),)))
        first_rows = next(i for i, t in enumerate(runtime.encode(LAYOUTS["first"])) if t < 0)
        other = runtime.answer(asked((user("What is this?", (OTHER, 0)),)))
        assert other.stats.cached_tokens <= first_rows
        assert one.stats.cached_tokens == 0


@pytest.mark.slow
@each_kind
def test_a_prompt_cut_anywhere_gives_the_same_reply(seeing: Seeing) -> None:
    """The cache serves a beginning of every length: never a part of a picture."""
    with opened(seeing, strict=seeing.model.stem != "gemma3") as runtime:
        request = asked(LAYOUTS["several"], sampling=WILD)
        tokens = runtime.encode(request.messages)
        whole = runtime.answer(request)
        target = runtime.pair.target
        for length in range(1, len(tokens) - 1, 5):
            runtime.forget()
            place = media_rows.before(tokens, length)
            found: list[int] = []

            def cut(free: object, place: int = place, found: list[int] = found) -> None:
                prefill = runtime._scheduler.prefill
                cache = runtime._scheduler.prefix_cache
                cache.restore(0, [], tokens[: place + 1], "")
                target.read(0, tokens[:place])
                target.audit(0)
                found.append(target.length(0))
                cache.has_read(0, tokens[:place], 0.1)
                cache.finished(0, tokens[:place])
                prefill.sequences.tokens[0] = tokens[:place]

            runtime._scheduler.call(cut)
            assert found == [place]
            reply = runtime.answer(request)
            assert reply.stats.cached_tokens == place
            if seeing.model.stem != "gemma3":
                assert reply.tokens == whole.tokens


@each_kind
def test_truncation_keeps_positions(seeing: Seeing) -> None:
    """What is read after a truncation has the positions that it would have had without."""
    with opened(seeing, kv_type="f32") as runtime:
        tokens = runtime.encode(LAYOUTS["several"])
        target = runtime.pair.target
        target.read(0, tokens[:-1])
        (straight,) = (s.logits[0].copy() for s in target.score([_pending(tokens)]))
        ends = [end for _, end, _ in media_rows.runs(tokens)][:-1]
        for end in [*ends, *(end + 1 for end in ends if end + 1 < len(tokens) - 1)]:
            if media_rows.before(tokens, end) < end:
                continue
            target.truncate(0, end)
            target.audit(0)
            assert target.length(0) == end
            target.read(0, tokens[end:-1])
            target.audit(0)
            (again,) = (s.logits[0].copy() for s in target.score([_pending(tokens)]))
            assert np.abs(again - straight).max() < 2e-3


def _pending(tokens: list[int]) -> Work:
    return Work(0, tokens[-1], no_draft("test"))


@each_kind
def test_states_bring_pictures_back_after_a_restart(seeing: Seeing, tmp_path: Path) -> None:
    request = asked(LAYOUTS["in an earlier turn"], sampling=GREEDY)

    def store(runtime: Runtime) -> KvStore:
        return KvStore(runtime.pair.identity, tmp_path / "states")

    with opened(seeing) as runtime:
        tokens = runtime.encode(request.messages)
        target = runtime.pair.target
        target.read(0, tokens[:-1])
        state = bytearray(target.state(0))
        assert target.state_size(0) == len(state)
        (before,) = (s.logits[0].copy() for s in target.score([_pending(tokens)]))
    with opened(seeing) as runtime:
        target = runtime.pair.target
        target.restore(0, state)
        target.audit(0)
        assert target.length(0) == len(tokens) - 1
        (after,) = (s.logits[0].copy() for s in target.score([_pending(tokens)]))
        assert (after == before).all()
        end = next(end for _, end, picture in media_rows.runs(tokens) if picture)
        target.keep(0, ())
        target.truncate(0, end)
        target.audit(0)
        assert target.length(0) == end


@each_kind
def test_several_replies_at_a_time_are_those_alone(seeing: Seeing) -> None:
    with opened(seeing, parallel=3, draft_max=4, drafter="suffix") as runtime:
        requests = [asked(messages, sampling=WILD) for messages in LAYOUTS.values()]
        requests.append(asked((user("No picture here."),), sampling=WILD))
        alone = []
        for request in requests:
            runtime.forget()
            alone.append(runtime.answer(dataclasses.replace(request, draft=False)).tokens)
        runtime.forget()
        streams = [runtime.submit(request) for request in requests]
        together = [finished(stream) for stream in streams]
        assert [reply.tokens for reply in together] == alone


def finished(stream: Iterator[object]) -> Reply:
    *_, last = stream
    assert isinstance(last, Finished)
    return last.reply


@pytest.mark.parametrize("family", ["llava", "qwen2vl"])
def test_strict_mode_holds_with_pictures(family: str, tmp_path: Path) -> None:
    seeing = write_seeing(tmp_path / "model", family)
    with opened(seeing, strict=True, kernels="llama", draft_max=4, drafter="suffix") as runtime:
        assert runtime.info.strict
        for messages in LAYOUTS.values():
            request = asked(messages, sampling=WILD)
            plain = runtime.answer(dataclasses.replace(request, draft=False))
            cached = runtime.answer(request)
            runtime.forget()
            fresh = runtime.answer(request)
            assert plain.tokens == cached.tokens == fresh.tokens


def test_rows_at_the_ends_of_lines_are_those_of_the_file(tmp_path: Path) -> None:
    """llama.cpp computes Pixtral's from memory that nobody has set."""
    seeing = write_seeing(tmp_path / "model", "pixtral")
    between = mapped(ModelFile(seeing.projector), (_BREAK,))[_BREAK].numbers().reshape(-1)
    rows = np.ones((11, len(between)), np.float32)
    rows[3], rows[7] = between, np.nan
    _repair_breaks(rows, between)
    assert (rows[[3, 7]] == between).all()
    rows[5] = np.nan  # in the middle of a line: the file is damaged
    _repair_breaks(rows, between)
    assert np.isnan(rows[5]).all()


def test_penalties_do_not_count_rows(tmp_path: Path) -> None:
    seeing = write_seeing(tmp_path / "model", "llava")
    with opened(seeing) as runtime:
        penalised = Sampling(temperature=0, repeat_penalty=1.5)
        reply = runtime.answer(asked(LAYOUTS["first"], sampling=penalised))
        assert len(reply.tokens) == 24


def test_an_interrupt_ends_the_encoding(tmp_path: Path) -> None:
    seeing = write_seeing(tmp_path / "model", "llava")
    with opened(seeing) as runtime:
        runtime.pair.sight.encoder(lambda _: None)
        interrupt = Interrupt()
        stream = runtime.submit(asked(LAYOUTS["first"]), interrupt)
        interrupt.set()
        assert finished(stream).finish_reason == "interrupt"
        assert runtime.answer(asked(LAYOUTS["first"])).tokens


def test_a_model_without_a_projector_says_what_to_do(tmp_path: Path) -> None:
    seeing = write_seeing(tmp_path / "model", "llava")
    seeing.projector.unlink()
    with opened(seeing) as runtime:
        assert not runtime.info.sees
        with pytest.raises(MediaError, match=r"cannot see pictures.*--mmproj FILE"):
            runtime.answer(asked(LAYOUTS["first"]))
        assert runtime.answer(asked((user("Hello"),))).tokens  # others go on


def test_a_picture_in_a_tool_s_result_is_seen_or_a_sentence_stands_for_it(tmp_path: Path) -> None:
    """An agent's conversation does not end because its model cannot see."""
    seeing = write_seeing(tmp_path / "model", "llava")
    (question,) = LAYOUTS["first"]
    result = dataclasses.replace(question, role="tool")
    damaged = dataclasses.replace(result, pictures=(Picture(b"nothing of the kind"),))
    with opened(seeing) as runtime:
        seen = runtime.answer(asked((user("Look"), result)))
        broken = runtime.answer(asked((user("Look"), damaged)))
    with opened(seeing, mmproj="none") as runtime:
        blind = runtime.answer(asked((user("Look"), result)))
    assert broken.tokens
    assert seen.stats.prompt_tokens != blind.stats.prompt_tokens


def test_none_switches_sight_off(tmp_path: Path) -> None:
    seeing = write_seeing(tmp_path / "model", "llava")
    with opened(seeing, mmproj="none") as runtime, pytest.raises(MediaError, match="cannot see"):
        runtime.answer(asked(LAYOUTS["first"]))


def test_a_projector_of_another_model_is_refused(tmp_path: Path) -> None:
    seeing = write_seeing(tmp_path / "model", "llava")
    other = picture_files.write_projector(tmp_path / "wide.gguf", "llava", width=96)
    with opened(seeing, mmproj=str(other)) as runtime:
        with pytest.raises(LocalspecError, match=r"does not encode pictures for llava\.gguf"):
            runtime.answer(asked(LAYOUTS["first"]))
        assert runtime.answer(asked((user("Hello"),))).tokens
    with pytest.raises(LocalspecError, match="is no projector"):
        opened(seeing, mmproj=str(seeing.model))
    with pytest.raises(ModelNotFoundError, match="there is no projector"):
        opened(seeing, mmproj=str(tmp_path / "nowhere.gguf"))


def test_a_damaged_picture_fails_its_reply_alone(tmp_path: Path) -> None:
    seeing = write_seeing(tmp_path / "model", "llava")
    with opened(seeing) as runtime:
        with pytest.raises(MediaError, match="is damaged"):
            runtime.answer(asked((user("What?", (ONE[:150], 0)),)))
        assert runtime.answer(asked(LAYOUTS["first"])).tokens


def test_prompts_with_pictures_cannot_be_scored() -> None:
    with pytest.raises(UsageError, match="cannot be scored"):
        asked(LAYOUTS["first"], prompt_logprobs=0)


def test_a_text_cannot_forge_a_picture(tmp_path: Path) -> None:
    seeing = write_seeing(tmp_path / "model", "llava")
    with opened(seeing) as runtime:
        prompts = runtime._scheduler.preparation.prompts
        shown = runtime.encode(LAYOUTS["first"])
        (mark,) = prompts._pictures._parts
        forged = runtime.encode((Message("user", f"{mark}What is this?"),))
        assert sum(map(media_rows.is_row, shown)) == 64
        assert not media_rows.has_rows(forged)


def test_loading_without_pictures_imports_and_loads_nothing_of_them(tmp_path: Path) -> None:
    seeing = write_seeing(tmp_path / "model", "llava")
    with opened(seeing) as runtime:
        assert runtime.info.sees
        runtime.answer(asked((user("Hello"),)))
        assert runtime.pair.target.pictures.projector is None
    code = (
        "import sys; from localspec import Runtime, Message; r = Runtime.open();"
        "list(r.reply([Message('user', 'Hi')], max_tokens=1)); r.close();"
        "assert not {'PIL', 'localspec.media'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


def test_compiling_is_told_in_the_reply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from localspec.llama import mtmd_library

    obtain = mtmd_library.obtain

    def slow(*, offline: bool = False, on_unit: object = None) -> Path:
        assert callable(on_unit)
        for part in (0.0, 0.0, 0.0, 0.1, 0.5, 0.5):  # asked for while the first unit is compiled
            on_unit(part)
        return obtain()

    monkeypatch.setattr(mtmd_library, "obtain", slow)
    seeing = write_seeing(tmp_path / "model", "llava")
    with opened(seeing) as runtime:
        told = [e.text for e in runtime.submit(asked(LAYOUTS["first"])) if isinstance(e, Notice)]
        assert (
            told[0]
            == "compiling llama.cpp's library for pictures, once: about a minute of two cores"
        )
        assert "50%" in told[1]
        assert sum("compiling" in line for line in told) == 2


@pytest.mark.parametrize("kind", ["mtp on a hybrid", "eagle3, borrowing", "eagle3, owning"])
def test_heads_draft_after_a_picture(kind: str, tmp_path: Path) -> None:
    """Also for a target with recurrent states, which no truncation brings back."""
    pair = write_pairs(tmp_path)[kind]
    eyes = picture_files.write_projector(tmp_path / "mmproj.gguf", "llava")
    strict = kind != "mtp on a hybrid"  # which can promise no bits; the others would at a near-tie
    options = pair.options(mmproj=str(eyes), remember=False, strict=strict)
    # Control tokens are not in the text, and a reply with one is read again.
    without = tuple((token, -100.0) for token in range(3))
    with Runtime.open(options) as runtime:
        for usual in (GREEDY, WILD):
            sampling = dataclasses.replace(usual, logit_bias=without)
            first = asked((user("Hello, what is this?", (ONE, 7)),), sampling=sampling)
            plain = runtime.answer(dataclasses.replace(first, draft=False))
            runtime.forget()
            drafted = runtime.answer(first)
            assert drafted.tokens == plain.tokens
            assert list(drafted.stats.by_drafter) == [pair.drafter]
            later = (*first.messages, Message("assistant", drafted.text), user("And?", (OTHER, 4)))
            second = dataclasses.replace(first, messages=later)
            assert runtime.answer(second).stats.cached_tokens > 64  # the first picture too
            runtime.forget()
            continued = runtime.answer(second)
            runtime.forget()
            alone = runtime.answer(dataclasses.replace(second, draft=False))
            assert continued.tokens == alone.tokens


@pytest.mark.parametrize("family", ["llava", "qwen2vl"])
def test_trees_are_drafted_after_pictures(family: str, tmp_path: Path) -> None:
    """Branches share the cells of a picture, whose positions may not be those of text."""
    seeing = write_seeing(tmp_path / "model", family)
    draft = write_seeing(tmp_path / "draft", family).model
    with opened(seeing, draft=str(draft), drafter="tree", draft_max=4) as runtime:
        assert runtime.pair.target.leaves > 1
        for sampling in (GREEDY, WILD):
            request = asked(LAYOUTS["several"], sampling=sampling)
            plain = runtime.answer(dataclasses.replace(request, draft=False))
            runtime.forget()
            drafted = runtime.answer(request)
            assert drafted.tokens == plain.tokens
            assert list(drafted.stats.by_drafter) == ["tree"]


def test_a_projector_of_another_family_is_no_model_s_without_being_named(tmp_path: Path) -> None:
    """Its rows have the width of other models too, which would see nothing in them."""
    seeing = picture_files.write_seeing(tmp_path, "llava")
    seeing.projector.unlink()
    foreign = picture_files.write_projector(tmp_path / "mmproj-other.gguf", "qwen2.5vl")
    target = ModelFile(seeing.model).header
    assert find_projector(target, seeing.model) is None
    assert not why_useless(target, read_opening(foreign))
