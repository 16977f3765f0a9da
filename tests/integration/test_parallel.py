"""Several requests of one runtime at a time, with every kind of drafter, on small random files."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import pytest
from conftest import Files
from head_pairs import Pair
from replies import ENDLESS, last

from localspec import Message, Options, Reply, ReplyRequest, Runtime, Sampling
from localspec.core.errors import OutOfMemoryError
from localspec.core.settings_schema import SPARE_JOBS
from localspec.llama.heads.base import Head
from localspec.loading import planning
from localspec.models.gguf.model_file import ModelFile
from localspec.models.memory.fit import fit_files
from localspec.models.memory.planner import Fit, Wishes
from localspec.runtime import ReplyStream

TEXTS = (
    "Hello there, hello there, hello",
    "One two three, one two three, one",
    "Quite another question, which is longer than the others are; hello there?",
    "a b a b a b a",
    "Hello there, hello there, hullo",
)
COLD = Sampling(temperature=0.0, logit_bias=ENDLESS)


def requests(n: int = 24) -> list[ReplyRequest]:
    return [
        ReplyRequest(
            (Message("user", text),),
            sampling=dataclasses.replace(COLD, temperature=float(i % 2)),
            seed=i,
            max_tokens=n + 3 * i,
        )
        for i, text in enumerate(TEXTS)
    ]


def together(runtime: Runtime, asked: Sequence[ReplyRequest]) -> list[Reply]:
    return [last(stream) for stream in [runtime.submit(request) for request in asked]]


def check(options: Options, drafter: str) -> None:
    """Replies in a batch are those of plain decoding alone, and drafts were accepted."""
    asked = requests()
    with Runtime.open(dataclasses.replace(options, parallel=3)) as runtime:
        assert runtime.info.parallel == 3
        found = together(runtime, asked)
        again = together(runtime, asked[::-1])[::-1]
    with Runtime.open(dataclasses.replace(options, drafter=("off",), draft=None)) as runtime:
        right = [last(runtime.submit(request)) for request in asked]
    assert [r.tokens for r in found] == [r.tokens for r in right]
    assert [r.tokens for r in again] == [r.tokens for r in right]
    assert sum(r.stats.by_drafter[drafter].drafted for r in found if r.stats.by_drafter) > 0


@pytest.mark.parametrize("drafter", ["model", "suffix"])
def test_replies_in_a_batch_are_those_of_plain_decoding(files: Files, drafter: str) -> None:
    draft = str(files.draft) if drafter == "model" else None
    options = Options(
        str(files.target), draft, drafter=(drafter,), draft_max=3, context=256, threads=1
    )
    check(options, drafter)


@pytest.mark.parametrize("name", ["mtp", "mtp on a hybrid", "eagle3, owning"])
def test_heads_draft_for_several_requests_in_the_same_passes(
    head_pairs: dict[str, Pair], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths: list[int] = []
    extend = Head.extend_together

    def counted(self: Head, work: Sequence[object]) -> object:
        widths.append(len(work))
        return extend(self, work)

    monkeypatch.setattr(Head, "extend_together", counted)
    pair = head_pairs[name]
    options = Options(
        str(pair.target),
        None if pair.head is None else str(pair.head),
        drafter=(pair.drafter,),
        draft_max=3,
        context=256,
        threads=1,
    )
    check(options, pair.drafter)
    assert widths.count(3) > 10


@pytest.mark.slow
def test_requests_stopped_and_dropped_in_random_order_leave_the_models_clean(files: Files) -> None:
    options = Options(
        str(files.target),
        str(files.draft),
        drafter=("suffix", "model"),
        draft_max=4,
        context=256,
        threads=1,
        parallel=4,
    )
    dice, asked = random.Random(5), requests(40)
    with Runtime.open(dataclasses.replace(options, drafter=("off",), draft=None)) as runtime:
        right = [runtime.answer(request).tokens for request in asked]
    streams: list[tuple[int, ReplyStream]] = []
    begun = 0
    with Runtime.open(options) as runtime:
        while begun < 200 or streams:
            if begun < 200 and (dice.random() < 0.6 or not streams):
                i = dice.randrange(len(asked))
                streams.append((i, runtime.submit(asked[i])))
                begun += 1
                continue
            i, stream = streams.pop(dice.randrange(len(streams)))
            what = dice.randrange(4)
            if what == 0:
                stream.close()
                continue
            if what == 1:
                next(stream)
                stream.interrupt()
            tokens = last(stream).tokens
            assert tokens == (right[i][: len(tokens)] if what == 1 else right[i])
        runtime.forget()
        for seq in range(runtime.info.parallel):
            runtime.pair.target.audit(seq)
            assert runtime.pair.target.length(seq) == 0


def test_fewer_requests_run_at_a_time_where_memory_is_short(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = fit_files

    def short(
        target: ModelFile, draft: ModelFile | None, wishes: Wishes, *, remote: None, beside: int
    ) -> Fit:
        assert remote is None
        if wishes.sequences > 2:
            raise OutOfMemoryError("too large")
        return planned(target, draft, wishes, beside=beside)

    monkeypatch.setattr(planning, "fit_files", short)
    options = Options(str(files.target), draft="none", context=256, threads=1, parallel=8)
    with Runtime.open(options) as runtime:
        assert runtime.info.parallel == 2
        assert "2 replies at a time instead of 8, to fit" in runtime.info.notices
        assert len(together(runtime, requests(8))) == len(TEXTS)


def test_trees_are_refused_in_one_line_where_several_requests_run(files: Files) -> None:
    options = Options(
        str(files.target), str(files.draft), drafter=("tree",), context=256, threads=1, parallel=2
    )
    with Runtime.open(options) as runtime:
        assert any("drafting chains, not trees" in notice for notice in runtime.info.notices)
        assert len(together(runtime, requests(8))) == len(TEXTS)
    options = dataclasses.replace(options, drafter=("lookahead",), draft=None)
    with Runtime.open(options) as runtime:
        assert runtime.info.speculation.state == "off"


@pytest.mark.parametrize(("drafter", "sequences"), [(("model",), 3), (("tree",), 1)])
def test_several_requests_at_a_time_are_loaded_where_they_cost_nothing_else(
    files: Files, drafter: tuple[str, ...], sequences: int
) -> None:
    """Trees that the user asked for stay: several requests would draft chains."""
    options = Options(
        str(files.target), draft=str(files.draft), drafter=drafter, draft_max=2, parallel=SPARE_JOBS
    )
    with Runtime.open(options) as runtime:
        assert runtime.info.parallel == sequences
