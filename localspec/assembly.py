"""From options to a loaded pair: models, contexts, drafter, verifier, policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from localspec import config, controlling
from localspec.controlling import Control
from localspec.drafters import Drafter, Off
from localspec.drafters.cascade import Cascade
from localspec.drafters.model import ModelDrafter
from localspec.drafters.ngram import NGram
from localspec.drafters.suffix import Suffix
from localspec.drafters.tree import TreeDrafter
from localspec.errors import (
    DraftIncompatibleError,
    Interrupted,
    LocalspecError,
    OutOfMemoryError,
)
from localspec.events import Loading, ModelInfo, Speculation
from localspec.llama import library
from localspec.llama.calibrate import Watchdog, choose_threads
from localspec.llama.context import Context
from localspec.llama.devices import backend
from localspec.llama.model import Model, check_file
from localspec.llama.runners import LlamaDraftModel, LlamaTarget
from localspec.llama.stop import StopFlag
from localspec.options import Options
from localspec.pairs.check import vocabulary_mismatch
from localspec.pairs.explain import needs
from localspec.pairs.fit import fit_files
from localspec.pairs.placement import BATCH, Share
from localspec.pairs.planning import Fit, Wishes, draft_kv_type, step_down
from localspec.pairs.resolve import Resolved, resolve
from localspec.verifiers import Verifier, verifier

_DEFAULT_DRAFTERS = ("suffix", "model")
_BRANCHES = 8
"""Leaves of a draft tree beyond the first."""
_CASCADE_MIN_MATCH = 4
"""Where a draft model waits, a match must be longer to be preferred."""

Progress = Callable[[Loading], None]


@dataclass(frozen=True, slots=True)
class Pairing:
    """A loaded pair, ready for the loop."""

    info: ModelInfo
    target_model: Model
    target: LlamaTarget
    drafter: Drafter
    verifier: Verifier
    control: Control
    stop: StopFlag
    """Set, it aborts the running pass."""
    watchdog: Watchdog | None
    parts: tuple[Context | Model, ...]
    """To be closed, in this order."""

    def close(self) -> None:
        """Free everything."""
        for part in self.parts:
            part.close()


def load(
    options: Options, on_event: Progress | None, cancelled: Callable[[], bool] | None
) -> Pairing:
    """Load what the options name.

    Raises:
        LocalspecError: see `localspec.errors`; nothing stays loaded.
    """
    library.log_to(config.make(config.state_dir()) / "llama.log")
    files = resolve(options.model, options.draft)
    assembly = _Assembly(options, files, on_event, cancelled, notices=list(files.notices))
    try:
        return assembly.pairing()
    except BaseException:
        assembly.close()
        raise


@dataclass(slots=True)
class _Assembly:
    """A pair while it is being put together."""

    options: Options
    files: Resolved
    on_event: Progress | None
    cancelled: Callable[[], bool] | None
    parts: list[Context | Model] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    stop: StopFlag = field(default_factory=StopFlag)
    drafting: dict[str, Context] = field(default_factory=dict)
    """Contexts of drafters that compute, by name."""

    def pairing(self) -> Pairing:
        """Load as planned; if memory is refused all the same, once more with a smaller plan.

        Raises:
            OutOfMemoryError: nothing fits; with the numbers.
        """
        fit = self.planned()
        try:
            return self.loaded(fit)
        except OutOfMemoryError as error:
            smaller = step_down(fit)
            if smaller is None:
                raise OutOfMemoryError(f"{error} ({needs(fit)})") from None
            what = str(error).split(";")[0]
        self.close()
        self.notices[:] = [f"memory was refused ({what}); loaded with less: {needs(smaller)}"]
        try:
            return self.loaded(smaller)
        except OutOfMemoryError as error:
            raise OutOfMemoryError(f"{error} ({needs(smaller)})") from None

    def planned(self) -> Fit:
        """Layers, context and KV type for what is going to be loaded."""
        options = self.options
        check_file(self.files.target)  # it has the clearest words for what is no model
        wishes = Wishes(
            context=options.context,
            gpu_layers=options.gpu_layers,
            draft_gpu_layers=options.draft_gpu_layers,
            kv_type=options.kv_type,
            threads=options.threads,
            require_draft=options.require_draft or options.draft is not None,
        )
        draft = self.files.draft if self.uses_draft else None
        return fit_files(self.files.target, draft, wishes)

    def loaded(self, fit: Fit) -> Pairing:
        options = self.options
        self.notices.extend(fit.notes)
        model = self.model(self.files.target, fit.target)
        self.look_at(model, fit.context)
        context = self.context(model, fit, fit.target.kv_type, self.branches(model))
        judge = verifier(options.verifier)
        draft = self.draft_model(model, fit)
        drafters = self.drafters(model, draft, fit, judge)
        off = self.why_off(model, drafters)
        control = self.control(context, drafters, off)
        on_cpu = options.threads is None and backend() == "cpu"
        target, drafts = self.files.target, self.files.draft
        return Pairing(
            info=ModelInfo(
                target=str(target),
                draft=str(drafts) if draft is not None else None,
                backend=backend(),
                context=context.capacity,
                name=self.files.name,
                target_bytes=target.stat().st_size,
                draft_bytes=drafts.stat().st_size if drafts and draft else 0,
                threads=context.threads,
                speculation=Speculation("off", off) if off else Speculation("on"),
                notices=tuple(self.notices),
            ),
            target_model=model,
            target=LlamaTarget(context),
            drafter=_combined(drafters),
            verifier=judge,
            control=control,
            stop=self.stop,
            watchdog=Watchdog(context) if on_cpu else None,
            parts=tuple(self.parts),
        )

    def close(self) -> None:
        """Free what is loaded so far."""
        for part in self.parts:
            part.close()
        self.parts.clear()

    def model(self, path: Path, share: Share | None) -> Model:
        def progress(fraction: float) -> None:
            if self.on_event is not None:
                self.on_event(Loading(path.name, fraction))

        layers = share.gpu_layers if share is not None else 0
        loaded = Model(path, gpu_layers=layers, on_progress=progress, cancelled=self.cancelled)
        self.parts.append(loaded)
        return loaded

    def look_at(self, model: Model, context: int) -> None:
        """Take note of what the person should know about the target."""
        trained, name = model.n_ctx_train, self.files.target.name
        if context > trained:
            self.notices.append(
                f"a context of {context} tokens is more than the {trained} that {name} was trained "
                "for; long chats may turn to nonsense"
            )
        if model.template is None:
            self.notices.append(f"{name} has no chat template: a plain User/Assistant one is used")

    def context(self, model: Model, fit: Fit, kv_type: str, branches: int = 0) -> Context:
        made = Context(
            model,
            n_ctx=fit.context,
            branches=branches,
            n_batch=BATCH,
            threads=fit.threads,
            kv_type=kv_type,
            stop=self.stop,
        )
        self.parts.insert(0, made)  # contexts are freed before the models they use
        if self.options.threads is None and backend() == "cpu":
            choose_threads(made)
        return made

    @property
    def wanted(self) -> tuple[str, ...]:
        if self.options.draft_max == 0:
            return ("off",)
        return self.options.drafter or _DEFAULT_DRAFTERS

    @property
    def uses_draft(self) -> bool:
        """Whether a drafter was asked for that needs a draft model."""
        return bool({"model", "tree"} & {*self.wanted})

    def draft_model(self, target: Model, fit: Fit) -> Model | None:
        """The draft model, or None with a notice; n-grams then draft alone.

        Raises:
            DraftIncompatibleError: it cannot be used, and the options insist on it.
            LocalspecError: a draft that the person named is not there or damaged.
        """
        options, path = self.options, self.files.draft
        if not self.uses_draft or not target.partial_removal:
            refusal = None if not options.require_draft else "drafting is off"
        elif path is None:
            refusal = "there is no draft model"
        elif fit.left_out is not None:
            refusal = fit.left_out
            self.notices.append(f"{refusal}; drafting from n-grams instead")
        else:
            try:
                draft = self.model(path, fit.draft)
            except Interrupted:
                raise
            except LocalspecError as error:
                if options.draft is not None or options.require_draft:
                    raise
                refusal = str(error)
            else:
                mismatch = _mismatch(target, draft)
                if mismatch is None:
                    return draft
                refusal = f"draft {path.name} cannot draft for {target.path.name}: {mismatch}"
            self.notices.append(f"{refusal}; drafting from n-grams instead")
        if options.require_draft:
            raise DraftIncompatibleError(refusal or "there is no draft model")
        return None

    def drafters(
        self, target: Model, draft: Model | None, fit: Fit, judge: Verifier
    ) -> list[Drafter]:
        """Those asked for that can be had, in order."""
        if not target.partial_removal:
            return []
        found: list[Drafter] = []
        for name in self.wanted:
            least = 2 if draft is None else _CASCADE_MIN_MATCH
            if name == "ngram":
                found.append(NGram(least))
            elif name == "suffix" or (draft is None and self.falls_back):
                found.append(Suffix(least))
            elif draft is not None:
                planned = fit.draft  # None where only llama.cpp could read its header
                kv_type = planned.kv_type if planned else draft_kv_type(None, fit.target.kv_type)
                branches = self.branches(draft) if name == "tree" else 0
                drafting = self.context(draft, fit, kv_type, branches)
                self.drafting[name] = drafting
                if name == "tree":
                    shared = min(draft.n_vocab, target.n_vocab)
                    found.append(TreeDrafter(LlamaTarget(drafting), shared, judge.favours))
                else:
                    runner = LlamaDraftModel(drafting, target.n_vocab)
                    found.append(ModelDrafter(runner, judge.favours))
        return found

    def branches(self, model: Model) -> int:
        """Sequences for branches of draft trees; none where nobody drafts trees."""
        if "tree" not in self.wanted:
            return 0
        if not model.branching:
            self.notices.append(
                f"{model.path.name} keeps a cache that cannot branch: drafting chains, not trees"
            )
            return 0
        return _BRANCHES

    @property
    def falls_back(self) -> bool:
        """Whether the text stands in for a draft model: where one was expected, and not asked
        too.
        """
        return self.files.draft is not None and not {"ngram", "suffix"} & {*self.wanted}

    def why_off(self, target: Model, drafters: list[Drafter]) -> str | None:
        if drafters:
            return None
        if not target.partial_removal:
            name = self.files.target.name
            return f"{name} keeps a recurrent state that cannot forget rejected tokens"
        return "switched off" if "off" in self.wanted else "there is no draft model"

    def control(self, context: Context, drafters: list[Drafter], reason: str | None) -> Control:
        if reason is not None:
            return controlling.off(reason)
        if self.options.draft_max is not None:
            return controlling.held(
                self.options.draft_max, context, branching="tree" in self.drafting
            )
        return controlling.automatic(
            self.options,
            context,
            self.drafting,
            sources=[drafter.name for drafter in drafters],
            branching={"tree"} & self.drafting.keys(),
        )


def _mismatch(target: Model, draft: Model) -> str | None:
    """Why the draft cannot serve the target; None if it can."""
    if not draft.partial_removal:
        return "it keeps a recurrent state that cannot forget rejected tokens"
    return vocabulary_mismatch(target, draft)


def _combined(drafters: list[Drafter]) -> Drafter:
    return Cascade(drafters) if drafters else Off()
