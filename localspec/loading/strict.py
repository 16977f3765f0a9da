"""Strict mode: promised for a target on this machine once a self-test has shown it.

The recipes of `localspec.llama.strict` are tried in turn on a small context of the target; the
first one whose bits never depend on how a text is computed is used and saved, so that later loads
need no test. Where none passes, the target is not loaded: a promise is kept or refused, never
weakened in silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.core.adapter_list import Blend
from localspec.core.errors import StrictError
from localspec.core.events import Loading
from localspec.core.files import paths
from localspec.core.files.measured import name_of, parsed, write
from localspec.llama import library, own_kernels
from localspec.llama.devices import backend, devices, driver
from localspec.llama.limits import STRICT_BATCH
from localspec.llama.model import Model
from localspec.llama.self_test import CELLS, SEQUENCES, Difference, SelfTest
from localspec.llama.strict import Recipe, recipes, strict_context
from localspec.loading import soundness
from localspec.loading.kernels import Kernels
from localspec.loading.resources import Parts
from localspec.models.gguf.model_file import ModelFile

_EDITION = 2
"""Raised when the self-test or a recipe changes."""
_NAMED = 3
"""Differences that a refusal names."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A recipe that passed its self-test for a target, and the target loaded for it."""

    recipe: Recipe
    model: Model

    @property
    def kernels(self) -> Kernels:
        """The kernels that it uses."""
        return Kernels(self.recipe.extra_buffers, "strict mode")


@dataclass(frozen=True, slots=True)
class StrictLoading:
    """Loads one target for strict mode."""

    parts: Parts
    target: ModelFile
    next_layers: bool
    """Whether its layers for multi-token prediction are loaded, too."""
    remeasure: bool
    """Whether the self-test is run even where it passed before."""

    def load(self) -> Promise:
        """The target, loaded by the first recipe that passes.

        Raises:
            StrictError: none does; with what differed.
            LocalspecError: it cannot be loaded at all.
        """
        library.untile()
        types = {tensor.ggml_type for header in self.target.headers for tensor in header.tensors}
        differed: Sequence[Difference] = ()
        for recipe in recipes(types, tiled=library.tiled(), own=bool(self.parts.own.unit)):
            model = self.parts.model(
                self.target.path,
                self.parts.fit.target,
                next_layers=self.next_layers,
                extra_buffers=recipe.extra_buffers,
            )
            if not model.partial_removal:
                raise StrictError(_recurrent(self.target.name))
            if recipe.own and not model.uses_own_kernels:
                self.parts.unload(model)
                continue
            if model.block_sparse and not recipe.own:
                raise StrictError(_block_sparse(self.target.name))
            if recipe.extra_buffers and not model.uses_extra_buffers:
                recipe = Recipe(extra_buffers=False, tiled=recipe.tiled)  # noqa: PLW2901 - the same
            file = self._file(model, recipe)
            # Another machine may answer at a worker's address next time.
            if not self.remeasure and model.remote is None and _passed(file, self._sequences):
                return Promise(recipe, model)
            differed = self._differences(model, recipe)
            if not differed:
                _remember(file, recipe, self._sequences)
                return Promise(recipe, model)
            self.parts.unload(model)
            if not recipe.extra_buffers:
                break
        raise StrictError(_refusal(self.target.name, differed))

    def _differences(self, model: Model, recipe: Recipe) -> list[Difference]:
        """Differences that the self-test finds on small contexts of its own: without adapters, and
        with all, since requests choose among them.
        """
        return [
            difference
            for blend in model.adapters.extremes()
            for difference in self._differences_with(blend, model, recipe)
        ]

    def _differences_with(self, blend: Blend, model: Model, recipe: Recipe) -> list[Difference]:
        with library.listening():
            context = strict_context(recipe)(
                model,
                n_ctx=CELLS,
                n_seq=self._sequences,
                n_batch=STRICT_BATCH,
                threads=self.parts.fit.threads,
                kv_type=self.parts.fit.target.kv_type,
                stop=self.parts.stop,
            )
        context.adapt(blend)
        try:
            return list(SelfTest(context).differences(self._progress))
        finally:
            context.close()

    @property
    def _sequences(self) -> int:
        """Sequences that are tested: as many as replies may run, and no fewer than `SEQUENCES`."""
        return max(SEQUENCES, self.parts.fit.wishes.sequences)

    def _progress(self, fraction: float) -> None:
        name = f"strict mode, checked once for {self.target.name}"
        self.parts.on_event(Loading(name, fraction))

    def _file(self, model: Model, recipe: Recipe) -> Path:
        share = self.parts.fit.target
        facts = {
            "edition": _EDITION,
            "target": model.digest,
            "layers": share.gpu_layers,
            "kv": share.kv_type,
            "buffers": model.buffers,
            "recipe": [recipe.extra_buffers, recipe.tiled, recipe.own],
            "device": [(d.kind, d.description) for d in devices()],
            "driver": driver(),
            "build": own_kernels.build(),
            "libraries": soundness.digest(),
        }
        if adapters := model.adapters.every().parts:
            facts["adapters"] = adapters
        if vectors := model.vectors.facts():
            facts["control vectors"] = vectors
        return paths.cache_dir() / "strict" / name_of(facts)


def _passed(file: Path, sequences: int) -> bool:
    """Whether the test passed, with so many sequences or more."""
    try:
        saved = parsed(file)
        return saved["passed"] is True and int(saved["sequences"]) >= sequences
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return False


def _remember(file: Path, recipe: Recipe, sequences: int) -> None:
    """Save that the test passed; where that fails, the next load tests again."""
    try:
        paths.make_parent(file)
        write(file, {"passed": True, "sequences": sequences, "recipe": recipe.describe()})
    except OSError as error:
        library.logger.warning("the result of the self-test cannot be saved: %s", error)


def _recurrent(name: str) -> str:
    return (
        f"strict mode is not possible with {name}: its recurrent state depends in the last bits on "
        "how a text is cut into passes; run it without --strict"
    )


def _block_sparse(name: str) -> str:
    return (
        f"strict mode is not possible with {name}: only our own kernels compute it strictly with "
        "flash attention, which its attention to blocks needs, and they are not used for this "
        "file; run it without --strict"
    )


def _refusal(name: str, differed: Sequence[Difference]) -> str:
    """One line that says what differed and what to do."""
    found = ", ".join(d.what for d in differed[:_NAMED])
    more = len(differed) - _NAMED
    if more > 0:
        found += f" and in {more} more ways"
    worst = max(d.logits for d in differed)
    advice = "run it without --strict"
    if library.tiled() and backend() == "cpu":
        advice = "a new process may pass: this one has computed with tiled products before"
    return (
        f"strict mode is not possible with {name} on this machine: the {backend()} backend "
        f"computes other last bits with {found} (up to {worst:.2g} in the logits); {advice}"
    )
