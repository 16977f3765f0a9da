"""Grammars on the embedded pair: drafted replies are those of plain masked decoding."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import gguf_tools
import head_files
import jsonschema
import pytest
from head_pairs import Pair

from localspec import (
    GREEDY,
    Finished,
    GrammarSpec,
    Message,
    Notice,
    Options,
    Reply,
    ReplyRequest,
    Runtime,
    Sampling,
)
from localspec.core.errors import UsageError

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 24},
        "year": {"type": "integer", "minimum": 1900, "maximum": 2100},
        "kind": {"enum": ["book", "film", "song"]},
        "good": {"type": "boolean"},
    },
    "required": ["title", "year", "kind", "good"],
    "additionalProperties": False,
}
SPEC = GrammarSpec.schema(SCHEMA)
WARM = Sampling(temperature=1.0)


def request(**changes: object) -> ReplyRequest:
    asked = {"sampling": GREEDY, "seed": 3, "max_tokens": 120, "grammar": SPEC, **changes}
    return ReplyRequest((Message("user", "Name something good."),), **asked)


def answer(runtime: Runtime, **changes: object) -> Reply:
    return runtime.answer(request(**changes))


DRAFTERS = ["suffix", "ngram", "model", "tree", "lookahead", "grammar", "suffix,model"]


@pytest.mark.slow
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_drafter_gives_the_reply_of_plain_masked_decoding(drafter: str) -> None:
    options = Options(drafter=tuple(drafter.split(",")), draft_max=6)
    with Runtime.open(options) as runtime:
        for sampling in (GREEDY, WARM):
            plain = answer(runtime, sampling=sampling, draft=False)
            drafted = answer(runtime, sampling=sampling)
            assert drafted.tokens == plain.tokens
            assert drafted.finish_reason == plain.finish_reason == "stop"
            jsonschema.validate(json.loads(drafted.text), SCHEMA)
            assert plain.stats.rounds == plain.stats.emitted
            assert drafted.stats.rounds < 0.75 * plain.stats.rounds
            assert "grammar" in drafted.stats.by_drafter or drafter == "tree"


def test_rejection_sampling_keeps_to_the_schema_and_switched_off_nothing_is_drafted() -> None:
    with Runtime.open(Options(verifier="rejection", draft_max=6)) as runtime:
        for seed in range(4):
            reply = answer(runtime, sampling=WARM, seed=seed)
            jsonschema.validate(json.loads(reply.text), SCHEMA)
    with Runtime.open(Options(drafter=("off",))) as runtime:
        assert answer(runtime).stats.drafted == 0


def test_a_reply_that_is_cut_says_so_and_one_that_is_complete_ends() -> None:
    with Runtime.open(Options(threads=1)) as runtime:
        *events, last = runtime.submit(request(max_tokens=9))
        assert isinstance(last, Finished)
        assert last.reply.finish_reason == "length"
        assert not last.reply.valid
        notices = [event.text for event in events if isinstance(event, Notice)]
        assert any("not valid" in text for text in notices)
        *events, last = runtime.submit(request())
        assert isinstance(last, Finished)
        assert not [event for event in events if isinstance(event, Notice)]
        assert last.reply.valid
        assert last.reply.tokens[-1] not in runtime.ends  # no pass for an end that is certain


def test_a_reply_that_a_stop_text_cut_is_valid_only_where_what_is_left_fits() -> None:
    one = GrammarSpec.schema({"const": {"a": 1}})
    with Runtime.open(Options(threads=1)) as runtime:
        for spec, stop, left, valid in (
            (GrammarSpec.choice(["yes"]), "s", "ye", False),
            (GrammarSpec.choice(["yes"]), "n", "yes", True),
            (GrammarSpec.choice(["yes please"]), " p", "yes", False),
            (GrammarSpec.choice(["yes please", "yes"]), " p", "yes", True),
            (one, "}", '{"a": 1', False),
        ):
            *events, last = runtime.submit(request(grammar=spec, stop=(stop,)))
            assert isinstance(last, Finished)
            assert (last.reply.text, last.reply.valid) == (left, valid)
            said = [event.text for event in events if isinstance(event, Notice)]
            assert any("a stop text ended" in text for text in said) == (not valid)


def test_conversations_go_on_after_a_reply_under_a_grammar() -> None:
    with Runtime.open(Options()) as runtime:
        first = answer(runtime)
        asked = request().messages
        said = (*asked, Message("assistant", first.text), Message("user", "And another?"))
        again = runtime.answer(ReplyRequest(said, seed=1, max_tokens=8))
        assert again.stats.cached_tokens > first.stats.prompt_tokens
        with pytest.raises(UsageError, match="cannot be continued"):
            runtime.answer(ReplyRequest(said[:2], grammar=SPEC))


def test_a_place_of_such_a_reply_is_examined_under_its_grammar() -> None:
    with Runtime.open(Options()) as runtime:
        reply = answer(runtime)
        for n in (1, 3, len(reply.tokens)):
            found = runtime.examine(request(), reply.tokens[:n])
            assert found.chosen.p == 1.0  # temperature 0


def test_requests_side_by_side_follow_their_own_grammars() -> None:
    specs = [SPEC, GrammarSpec.choice(["yes", "no"]), None, GrammarSpec.regex("[a-f]{8}")]
    with Runtime.open(Options()) as runtime:
        alone = [answer(runtime, grammar=spec, max_tokens=40).text for spec in specs]
        streams = [runtime.submit(request(grammar=spec, max_tokens=40)) for spec in specs]
        together = [
            event.reply.text for event in itertools.chain(*streams) if isinstance(event, Finished)
        ]
    assert together == alone
    assert alone[1] in {"yes", "no"}


HEADS = ("mtp", "mtp on a hybrid", "eagle3, borrowing", "eagle3, few words")


def exact_under_a_grammar(options: Options) -> set[str]:
    """Compares drafted replies with plain ones; returns the names of what drafted."""
    sources: set[str] = set()
    with Runtime.open(options) as runtime:
        for sampling in (GREEDY, WARM):
            for spec in (SPEC, GrammarSpec.regex("[a-z ]{20,30}, then [0-9]{3}")):
                plain = answer(runtime, sampling=sampling, grammar=spec, draft=False)
                drafted = answer(runtime, sampling=sampling, grammar=spec)
                assert drafted.tokens == plain.tokens
                assert drafted.finish_reason == plain.finish_reason
                sources |= set(drafted.stats.by_drafter)
    return sources


@pytest.mark.parametrize("kind", HEADS)
def test_heads_draft_under_a_grammar(head_pairs: dict[str, Pair], kind: str) -> None:
    drafted = exact_under_a_grammar(head_pairs[kind].options())
    assert head_pairs[kind].drafter in drafted


def test_medusa_heads_draft_under_a_grammar(tmp_path: Path) -> None:
    target = gguf_tools.write_llama(tmp_path / "target.gguf", layers=2, seed=3, context=1024)
    heads = head_files.write_medusa(tmp_path / "heads.gguf", own=(1,))
    options = Options(str(target), str(heads), drafter=("medusa",), draft_max=3)
    assert "medusa" in exact_under_a_grammar(options)


def test_a_head_of_blocks_drafts_under_a_grammar(tmp_path: Path) -> None:
    target = gguf_tools.write_llama(tmp_path / "target.gguf", layers=4, seed=3, context=1024)
    head_files.write_dflash(tmp_path / "head.gguf", block=8)
    head = str(tmp_path / "head.gguf")
    options = Options(str(target), head, drafter=("dflash",), draft_max=6)
    assert "dflash" in exact_under_a_grammar(options)
