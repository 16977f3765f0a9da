"""Values of other types than expected, for every key of the metadata that is read."""

from __future__ import annotations

import struct

import pytest
from faults import header_values
from faults.header_values import changed, keys_read, of_each_type

from localspec.core.errors import LocalspecError, ModelFileError
from localspec.models.compat import gemma_assistant, heads
from localspec.models.compat.header_vocabulary import end_tokens, require_text_model
from localspec.models.gguf.header import Header, parse_header
from localspec.models.gguf.sizes import sizes_of

KEY = "llama.attention.head_count_kv"


def header_of(raw: bytes) -> Header:
    return parse_header(lambda start, end: raw[start:end], len(raw))


def look(target: Header, draft: Header | None) -> None:
    """All that is read of the headers of a target and its draft."""
    for header in (target, draft):
        if header is not None:
            sizes_of(header)
            end_tokens(header)
            heads.carries_mtp(header)
            heads.corrected_metadata(header)
            heads.state_width(header)
    if draft is not None:
        heads.why_incompatible(target, draft)
    require_text_model(target)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind == "alone" else pytest.mark.slow)
        for kind in header_values.KINDS
    ],
)
def test_a_key_of_another_type_is_damage_or_does_not_matter(kind: str) -> None:
    raws = header_values.files(kind)
    with keys_read() as asked:
        pair = [None if raw is None else header_of(raw) for raw in raws]
        look(*pair)
    assert KEY.removeprefix("llama") in {key.removeprefix(key.partition(".")[0]) for key in asked}
    for at, (raw, header) in enumerate(zip(raws, pair, strict=True)):
        if raw is None or header is None:
            continue
        for key in sorted(asked):
            for value in of_each_type(header.n_layer):
                try:
                    pair[at] = header_of(changed(raw, {key: value}))
                    look(*pair)
                except LocalspecError:
                    pass
                except Exception as error:
                    raise AssertionError(f"{key} of {value.hex()}") from error
        pair[at] = header


def test_key_heads_of_layers_are_whole_numbers() -> None:
    """Arrays of fractions and of texts were called a bug of localspec."""
    raw, _ = header_values.files("alone")
    for value in header_values.VALUES:
        kind, *_ = struct.unpack("<I", value[:4])
        inner = struct.unpack("<IQ", value[4:16]) if kind == 9 else (4, 0)
        file = changed(raw, {KEY: value})
        if inner[0] in {6, 7, 8, 12} and inner[1]:
            with pytest.raises(ModelFileError, match="not all whole numbers"):
                header_of(file)
        else:
            assert all(type(n) is int for n in header_of(file).heads_kv())


def test_layers_for_prediction_are_bounded_where_no_layers_are_stated() -> None:
    """2^64 - 1 of them took all memory."""
    value = struct.pack("<IQ", 10, (1 << 64) - 1)
    raw = changed(header_values.files("alone")[0], {"llama.nextn_predict_layers": value})
    raw = changed(raw, {"llama.block_count": struct.pack("<If", 6, 2.0)})
    with pytest.raises(ModelFileError, match="of 512 layers for prediction"):
        header_of(raw)


def test_a_target_that_lists_more_layers_than_it_has_takes_no_assistant() -> None:
    target, draft = header_values.files("assistant")
    assert draft is not None
    short = changed(target, {"gemma4.block_count": struct.pack("<II", 4, 1)})
    assert gemma_assistant.problem(header_of(draft), header_of(target)) is None
    assert "slide" in (gemma_assistant.problem(header_of(draft), header_of(short)) or "")
