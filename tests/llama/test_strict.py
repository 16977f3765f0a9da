"""Strict contexts: the bits of a text do not depend on how it is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from conftest import Files

from localspec.core.errors import ContextFullError
from localspec.core.settings_schema import JOBS
from localspec.core.target import Work
from localspec.core.values import Draft, Logits, Proposal, Tokens, chain_parents, no_draft
from localspec.llama import library
from localspec.llama.limits import LEAST_ROWS, STRICT_BATCH
from localspec.llama.model import Model
from localspec.llama.proof import write_model
from localspec.llama.self_test import CELLS, SEQUENCES, SelfTest
from localspec.llama.strict import Recipe, StrictContext, recipes, strict_context
from localspec.llama.target import LlamaTarget

_Q2_K, _Q4_K, _Q6_K, _Q4_0 = 10, 12, 14, 2


@pytest.fixture(scope="module", params=["Q4_0", "Q8_0", "F16"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("strict") / "model.gguf"
    write_model(path, request.param)
    return Model(path, alone=False)


def context(
    model: Model, kind: type[StrictContext] = StrictContext, n_seq: int = SEQUENCES
) -> StrictContext:
    return kind(model, n_ctx=CELLS, n_seq=n_seq, n_batch=STRICT_BATCH, threads=1)


@pytest.mark.parametrize("n_seq", [SEQUENCES, 7, JOBS.high])
def test_a_text_has_the_same_bits_in_every_way_of_computing_it(model: Model, n_seq: int) -> None:
    found = list(SelfTest(context(model, n_seq=n_seq)).differences(lambda _: None))
    assert found == []


class Counted(StrictContext):
    """Notes the rows of each sequence in its passes, and of the passes."""

    def forward(
        self,
        work: Sequence[tuple[int, Tokens, int]],
        *,
        states: bool = False,
        padding: Sequence[int] = (),
    ) -> list[Logits]:
        seen.add((len(work), max(len(tokens) for _, tokens, _ in work)))
        return super().forward(work, states=states, padding=padding)


seen: set[tuple[int, int]] = set()


@pytest.mark.parametrize("n_seq", [SEQUENCES, 8, JOBS.high])
def test_the_test_reaches_as_far_as_drafts_and_replies_do(files: Files, n_seq: int) -> None:
    """The longest draft alone and beside another, and all sequences in the widest pass."""
    seen.clear()
    made = context(Model(files.target), Counted, n_seq)
    assert list(SelfTest(made).differences(lambda _: None)) == []
    target = LlamaTarget(made)
    for batch in (1, 2, n_seq):
        assert (batch, 1 + target.deepest(batch)) in seen


class Rounding(StrictContext):
    """A backend with another kernel from 8 tokens on."""

    def forward(
        self,
        work: Sequence[tuple[int, Tokens, int]],
        *,
        states: bool = False,
        padding: Sequence[int] = (),
    ) -> list[Logits]:
        rows = super().forward(work, states=states, padding=padding)
        if sum(len(tokens) for _, tokens, _ in work) >= 8:
            return [row * np.float32(1.0000002) for row in rows]
        return rows


def test_a_difference_in_the_last_bit_is_found_and_named(files: Files) -> None:
    kind = Model(files.target)
    found = [d.what for d in SelfTest(context(kind, Rounding)).differences(lambda _: None)]
    assert found == [
        "passes of 8 tokens",
        "passes of 16 tokens",
        "passes of 24 tokens",
        "passes of 32 tokens",
        "passes of 63 tokens",
        "three more sequences",
        "one more sequence in passes of 64 tokens",
        "3 more sequences in passes of 64 tokens",
        "another place among the sequences",
    ]


@pytest.fixture
def small(files: Files) -> Iterator[StrictContext]:
    made = StrictContext(Model(files.target), n_ctx=256, n_batch=16, threads=1)
    yield made
    made.close()


def test_padding_leaves_nothing_behind(small: StrictContext) -> None:
    for n in (1, 2, 1):
        before = small.length(0)
        (rows,) = small.forward([(0, [5] * n, n)])
        assert rows.shape == (n, small.model.n_vocab)
        assert small.length(0) == before + n
        small.audit()


def test_a_context_fills_up_to_its_last_token(small: StrictContext) -> None:
    small.read(0, [5] * (small.capacity - 1))
    small.forward([(0, [5], 1)])
    assert small.length(0) == small.capacity
    with pytest.raises(ContextFullError):
        small.forward([(0, [5, 5], 1)])


def test_a_sequence_without_room_for_the_widest_draft_has_a_pass_of_its_own(files: Files) -> None:
    kind = Model(files.target)
    made = StrictContext(kind, n_ctx=256, n_seq=2, n_batch=64, threads=1)
    target = LlamaTarget(made)
    target.read(0, [5] * 10)
    target.read(1, [6] * (target.capacity - 2))
    draft = Draft(
        np.array([7] * 6, np.int32), chain_parents(6), Proposal.DETERMINISTIC, None, "test"
    )
    wide, full = Work(0, 8, draft), Work(1, 9, no_draft("test"))
    rows = [scores.logits.copy() for scores in target.score([wide, full])]
    for w in (wide, full):
        target.keep(w.seq, ())
        target.truncate(w.seq, target.length(w.seq) - 1)
        (alone,) = target.score([w])
        assert np.array_equal(alone.logits, rows[w.seq])
        target.keep(w.seq, ())
        target.audit(w.seq)


def test_repacked_weights_are_left_out_where_their_kernels_depend_on_rows() -> None:
    plain = Recipe(extra_buffers=False, tiled=False)
    assert recipes({_Q4_K, _Q6_K}, tiled=False) == [plain]
    assert recipes({_Q2_K}, tiled=False) == [plain]
    assert recipes({_Q4_0, _Q6_K}, tiled=False) == [Recipe(True, tiled=False), plain]


def test_own_kernels_need_no_recipe_but_themselves() -> None:
    first, *others = recipes({_Q4_K, _Q6_K}, tiled=False, own=True)
    assert first == Recipe(True, tiled=False, own=True)
    assert strict_context(first).least_rows == 1
    assert [strict_context(other).least_rows for other in others] == [LEAST_ROWS, LEAST_ROWS]


def test_tiles_are_switched_off_only_before_the_first_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(library, "_computing", [])
    monkeypatch.setenv("GGML_CPU_TILED_MM", "1")
    monkeypatch.setattr(library, "_switched", set())
    assert library.tiled()
    assert library.untile()
    library.mark_computing()
    assert not library.tiled()
    assert "GGML_CPU_TILED_MM" not in library.environment_of_others()

    monkeypatch.setattr(library, "_computing", [True])
    assert not library.untile()
    assert library.tiled()
