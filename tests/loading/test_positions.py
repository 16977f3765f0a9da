"""Models with a table of positions, beyond which llama.cpp ends the process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf_tools
import pytest

from localspec import GREEDY, Options, ReplyRequest, Runtime
from localspec.bench.scoring import complete
from localspec.core.errors import ContextError, ContextFullError
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.llama.strict import StrictContext

POSITIONS = 64
LONG = ReplyRequest(
    prompt="a" * 40,
    sampling=GREEDY,
    seed=1,
    max_tokens=80,
)


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    return gguf_tools.write_gpt2(tmp_path / "gpt2.gguf", positions=POSITIONS)


@pytest.mark.parametrize("kind", [Context, StrictContext])
def test_a_context_has_no_more_room_than_the_model_has_positions(
    gpt2: Path, kind: type[Context]
) -> None:
    model = Model(gpt2)
    context = kind(model, n_ctx=400, n_seq=2, threads=1)
    try:
        assert context.capacity == POSITIONS + 1 - kind.least_rows
        context.read(1, [5] * (context.capacity - 1))
        context.forward([(1, [6], 1)])
        for work in ([(1, [7] * kind.least_rows, 1)], [(0, [5] * (POSITIONS + 1), 0)]):
            with pytest.raises(ContextFullError):
                context.forward(work)
    finally:
        context.close()
        model.close()


def test_a_target_gets_the_context_it_has_positions_for_and_says_so(gpt2: Path) -> None:
    with Runtime.open(Options(str(gpt2), draft="none", context=400)) as runtime:
        assert runtime.info.context == POSITIONS
        cut = "the context is 64 tokens instead of 400: gpt2.gguf has no more positions"
        assert cut in runtime.info.notices
        assert complete(runtime.answer(LONG)).tokens
        with pytest.raises(ContextError, match="reads at most 64"):
            complete(runtime.answer(ReplyRequest(prompt="a" * 100, sampling=GREEDY)))
    with Runtime.open(Options(str(gpt2), draft="none", context=48)) as runtime:
        assert runtime.info.context == 48


@pytest.mark.parametrize("drafter", ["model", "tree"])
def test_a_draft_that_runs_out_of_positions_stops_drafting_and_the_reply_goes_on(
    gpt2: Path, tmp_path: Path, drafter: str
) -> None:
    target = gguf_tools.write_llama(tmp_path / "target.gguf", eos=0)
    options = Options(str(target), str(gpt2), drafter=(drafter,), draft_max=3, context=256)
    with Runtime.open(options) as runtime:
        assert (
            "gpt2.gguf was trained for 64 tokens, and the context has 256: beyond that it drafts "
            "nothing"
        ) in runtime.info.notices
        plain = complete(runtime.answer(replace(LONG, draft=False)))
        drafted = complete(runtime.answer(LONG))
        beyond = complete(runtime.answer(ReplyRequest(prompt="a" * 90, sampling=GREEDY)))
    assert len(plain.tokens) > POSITIONS
    assert drafted.tokens == plain.tokens
    assert drafted.stats.drafted, drafted.stats
    assert beyond.tokens
