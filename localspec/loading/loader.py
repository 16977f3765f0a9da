"""From options to a loaded pair: models, contexts, drafter, verifier, policy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

from localspec.config import paths
from localspec.core.events import Loading, ModelInfo, Speculation
from localspec.drafters.base import Drafter, Off
from localspec.drafters.cascade import Cascade
from localspec.errors import OutOfMemoryError
from localspec.llama import library
from localspec.llama.abort import StopFlag
from localspec.llama.context import Context
from localspec.llama.devices import backend, physical_cores
from localspec.llama.limits import ROLLBACK
from localspec.llama.model import Model, check_file
from localspec.llama.target import LlamaTarget
from localspec.llama.threads import Watchdog
from localspec.llama.timing import Timed
from localspec.loading import policy
from localspec.loading.drafter_registry import branches, broad, must_fit, uses_draft, wanted
from localspec.loading.drafters import Gathering
from localspec.loading.heads import Brought, brought
from localspec.loading.kernels import NOT_COMPARED, Kernels, Trials
from localspec.loading.options import Options
from localspec.loading.policy import Control
from localspec.loading.resources import Parts, Progress
from localspec.loading.soundness import required
from localspec.models.catalog.resolve import Resolved, resolve
from localspec.models.compat.heads import carries_mtp
from localspec.models.gguf.model_file import ModelFile
from localspec.models.memory.fit import fit_files
from localspec.models.memory.planner import Fit, Wishes, step_down
from localspec.models.memory.report import needs
from localspec.verifiers import Verifier, verifier


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """A loaded pair, ready for the loop."""

    info: ModelInfo
    target_model: Model
    target: LlamaTarget
    drafter: Drafter
    verifier: Verifier
    control: Control
    identity: str
    """Stands for all that a saved state of the target's KV cache depends on."""
    stop: StopFlag
    """Set, it aborts the running pass."""
    watchdog: Watchdog | None
    parts: Parts
    """All that is loaded."""

    def close(self) -> None:
        """Free everything; a reply that is being made ends before its next pass."""
        self.stop.set()
        self.parts.close()


def load(
    options: Options,
    on_event: Progress | None,
    cancelled: Callable[[], bool] | None,
    *,
    anew: bool = False,
) -> LoadedPair:
    """Load what the options name; with ``anew``, whatever earlier loads measured.

    Raises:
        LocalspecError: see `localspec.errors`; nothing stays loaded.
    """
    library.log_to(paths.make(paths.state_dir()) / "llama.log")
    files = resolve(options.model, options.draft)
    build = required(on_start=lambda: _tell_check(on_event))
    notices = list(files.notices)
    return _Loader(
        options, files, on_event, cancelled, notices, anew, build.extra_buffers
    ).pairing()


def _tell_check(on_event: Progress | None) -> None:
    if on_event is not None:
        on_event(Loading("llama.cpp, checked once on this processor", 0.0))


@dataclass
class _Loader:
    """A pair while it is being put together."""

    options: Options
    files: Resolved
    on_event: Progress | None
    cancelled: Callable[[], bool] | None
    notices: list[str]
    anew: bool
    """Whether the choice of kernels is to be measured again."""
    extra_buffers: bool
    """Whether llama.cpp's extra buffers are sound on this machine."""
    stop: StopFlag = field(default_factory=StopFlag)

    def pairing(self) -> LoadedPair:
        """Load as planned; if memory is refused all the same, once more with a smaller plan.

        Raises:
            OutOfMemoryError: nothing fits; with the numbers.
            LocalspecError: as `load`.
        """
        fit = self.planned()
        try:
            return self.loaded(fit)
        except OutOfMemoryError as error:
            smaller = step_down(fit)
            if smaller is None:
                raise OutOfMemoryError(f"{error} ({needs(fit)})") from None
            what = str(error).split(";")[0]
        self.notices[:] = [f"memory was refused ({what}); loaded with less: {needs(smaller)}"]
        try:
            return self.loaded(smaller)
        except OutOfMemoryError as error:
            raise OutOfMemoryError(f"{error} ({needs(smaller)})") from None

    def planned(self) -> Fit:
        """Layers, context and KV type for what is going to be loaded."""
        options = self.options
        check_file(self.files.target.path)  # it has the clearest words for what is no model
        wishes = Wishes(
            context=options.context,
            gpu_layers=options.gpu_layers,
            draft_gpu_layers=options.draft_gpu_layers,
            kv_type=options.kv_type,
            threads=options.threads,
            require_draft=must_fit(options, self.brought),
        )
        draft = self.files.draft if uses_draft(self.names, self.brought) else None
        return fit_files(self.files.target, draft, wishes)

    @functools.cached_property
    def brought(self) -> Brought:
        """The drafts that the files bring."""
        return brought(self.files.target, self.files.draft)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the drafters wanted."""
        return wanted(self.options, self.brought)

    def loaded(self, fit: Fit) -> LoadedPair:
        """Loaded by this plan; if that fails, nothing stays loaded."""
        parts = Parts(
            fit,
            self.options.threads,
            self.stop,
            self.on_event,
            self.cancelled,
            extra_buffers=self.extra_buffers,
        )
        try:
            return self.put_together(parts)
        except BaseException:
            parts.close()
            raise

    def put_together(self, parts: Parts) -> LoadedPair:
        """The target, then what drafts for it, then who decides about that."""
        options, fit = self.options, parts.fit
        self.notices.extend(fit.notes)
        in_target = any(self.brought.in_target(name) for name in self.names)
        carried = in_target and carries_mtp(self.brought.target)
        kernels, context = self.target(parts, next_layers=carried)
        model = context.model
        judge = verifier(options.verifier)
        gathering = Gathering(
            options=options,
            names=self.names,
            target_file=self.files.target,
            file=self.files.draft,
            files=self.brought,
            target=context,
            parts=parts,
            favours=judge.favours,
            notices=self.notices,
        )
        drafters = gathering.drafters()
        off = self.why_off(drafters)
        control = self.control(context, drafters, gathering.timed, off)
        watched = options.threads is None and model.on_host
        return LoadedPair(
            info=self.info(
                context,
                drafters,
                self.files.draft if gathering.uses_file else None,
                off,
                kernels.describe(model),
            ),
            target_model=model,
            target=LlamaTarget(context, gathering.features),
            drafter=_combined(drafters),
            verifier=judge,
            control=control,
            identity=policy.state_identity(context),
            stop=self.stop,
            watchdog=Watchdog(context, physical_cores()) if watched else None,
            parts=parts,
        )

    def target(self, parts: Parts, *, next_layers: bool) -> tuple[Kernels, Context]:
        """The target's context, with the kernels that are known to be the better ones for drafting
        here; where that is not known and something is to draft, they are compared first.
        """
        file, fit = self.files.target.path, parts.fit
        trials = Trials(parts, file)
        known = trials.bound() if self.anew else trials.known()
        kernels = known or NOT_COMPARED
        model = parts.model(
            file, fit.target, next_layers=next_layers, extra_buffers=kernels.extra_buffers
        )
        self.look_at(model, fit.context)
        own = branches(self.options, self.names, self.brought, model, self.notices)
        context = parts.context(model, fit.target.kv_type, own, rollback=self.rollback)
        if known is None and self.options.draft_max is None and "off" not in self.names:
            kernels, better = trials.choose(context, next_layers, self.draft_bytes(model))
            if better is not model:
                context = parts.context(better, fit.target.kv_type, own, rollback=self.rollback)
        return kernels, context

    def draft_bytes(self, target: Model) -> int:
        """About what is read for a drafted token; 0 where nothing computes one."""
        if any(self.brought.in_target(name) for name in self.names):
            return target.n_bytes // max(1, target.n_layer)
        draft = self.brought.draft if uses_draft(self.names, self.brought) else None
        return draft.size if draft is not None else 0  # a missing file is an error later

    def info(
        self,
        context: Context,
        drafters: list[Drafter],
        draft: ModelFile | None,
        off: str | None,
        kernels: str,
    ) -> ModelInfo:
        """What callers are told; ``draft`` is the file that is drafted from, if one is."""
        target = self.files.target.path
        return ModelInfo(
            target=str(target),
            draft=str(draft.path) if draft else None,
            backend=backend(),
            context=context.capacity,
            name=self.files.name,
            target_bytes=target.stat().st_size,
            draft_bytes=draft.path.stat().st_size if draft else 0,
            threads=context.threads,
            speculation=Speculation("off", off) if off else Speculation("on"),
            notices=tuple(self.notices),
            drafters=tuple(drafter.name for drafter in drafters),
            kernels=kernels,
        )

    def look_at(self, model: Model, context: int) -> None:
        """Take note of what the person should know about the target."""
        trained, name = model.n_ctx_train, self.files.target.name
        if context > trained:
            self.notices.append(
                f"a context of {context} tokens is more than the {trained} that {name} was trained "
                "for; long chats may turn to nonsense"
            )
        trouble = self.brought.unused_layer(self.options)
        if trouble is not None:
            self.notices.append(f"{trouble}; drafting without it")
        if model.template is None:
            self.notices.append(f"{name} has no chat template: a plain User/Assistant one is used")

    @property
    def rollback(self) -> int:
        """Tokens that a recurrent state is to be taken back by."""
        return 0 if "off" in self.names else ROLLBACK

    def why_off(self, drafters: list[Drafter]) -> str | None:
        """Why nothing drafts; None where something does."""
        if drafters:
            return None
        names = self.names
        if "off" in names:
            return "switched off"
        if "lookahead" in names:
            return f"{self.files.target.name} keeps a cache that cannot branch"
        return "there is no draft model"

    def control(
        self,
        context: Context,
        drafters: list[Drafter],
        drafting: dict[str, Timed],
        reason: str | None,
    ) -> Control:
        """The policy: none where nothing drafts, a fixed length where one was asked for."""
        if reason is not None:
            return policy.off(reason)
        names = [drafter.name for drafter in drafters]
        branching = broad(self.options, names, self.brought, context)
        if self.options.draft_max is not None:
            return policy.held(self.options.draft_max, context, branching)
        return policy.automatic(context, drafting, sources=names, branching=branching)


def _combined(drafters: list[Drafter]) -> Drafter:
    return Cascade(drafters) if drafters else Off()
