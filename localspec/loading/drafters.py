"""The drafters of a pair: those that were asked for and can be had."""

from __future__ import annotations

from dataclasses import dataclass, field

from localspec.chats.drafting_texts import remembered
from localspec.core.values import Proposal
from localspec.drafters.base import Drafter
from localspec.drafters.lookup.lookahead import Lookahead
from localspec.drafters.lookup.ngram import NGram
from localspec.drafters.lookup.suffix import Suffix
from localspec.drafters.model.chain import ChainDrafter
from localspec.drafters.model.cross_vocabulary import TranslatedModel
from localspec.drafters.model.interface import DraftModel
from localspec.drafters.model.tree import TreeDrafter
from localspec.errors import (
    ChatsError,
    DraftIncompatibleError,
    Interrupted,
    LocalspecError,
    ModelFileError,
    OutOfMemoryError,
    UnsupportedModelError,
)
from localspec.llama.context import Context
from localspec.llama.draft_model import LlamaDraftModel
from localspec.llama.heads.base import Head
from localspec.llama.heads.hidden_states import Features
from localspec.llama.model import Model
from localspec.llama.target import LlamaTarget
from localspec.llama.timing import Timed, of_context
from localspec.loading.drafter_registry import WITH_A_MODEL, branches, insists_on, uses_draft
from localspec.loading.heads import HEADS, Brought, Opened, opened, opened_medusa
from localspec.loading.options import Options
from localspec.loading.resources import Parts
from localspec.models.catalog.resolve import NO_DRAFT
from localspec.models.compat.heads import MEDUSA, MODEL
from localspec.models.compat.token_map import Translation, too_little, translate
from localspec.models.compat.vocabularies import vocabulary_mismatch
from localspec.models.gguf.model_file import ModelFile
from localspec.models.memory.planner import Fit, draft_kv_type

_FROM_THE_TEXT = frozenset({"suffix", "ngram"})
_BEFORE_A_MODEL = 4
"""Where a draft model waits, a match must be this long to be preferred."""


@dataclass(slots=True)
class Gathering:
    """Finds a pair's drafters."""

    options: Options
    names: tuple[str, ...]
    """Of the drafters wanted."""
    target_file: ModelFile
    file: ModelFile | None
    """Of the draft model, or of the head."""
    files: Brought
    target: Context
    """Of the target model."""
    parts: Parts
    """Loads what is missing."""
    favours: Proposal
    """The kind of proposal that the verifier favours."""
    notices: list[str]
    """Where what the person should know is added."""
    draft: Model | None = None
    uses_file: bool = False
    """Whether something is drafted from the file."""
    features: Features | None = None
    """What the target is to keep for a head."""
    timed: dict[str, Timed] = field(default_factory=dict)
    """Prices of drafters that compute, by name."""
    _translation: Translation | None = None

    def drafters(self) -> list[Drafter]:
        """Those asked for that can be had, in order.

        Raises:
            DraftIncompatibleError: the draft model cannot be used, and the options insist on it.
            LocalspecError: a draft that the person named is not there or damaged.
        """
        if WITH_A_MODEL & {*self.names} or (
            self.options.require_draft and not HEADS & {*self.names}
        ):
            self.draft = self._draft_model()
            self.uses_file = self.draft is not None
        found: list[Drafter] = []
        for name in self.names:
            if name in HEADS:
                found += self._with_head(name)
            elif name in WITH_A_MODEL and self.draft is not None:
                found.append(self._with_model(name, self.draft))
            elif name == "lookahead" and self._model.branching:
                found.append(Lookahead())
            elif name == "ngram":
                found.append(NGram(max(2, self._shortest)))
            elif name == "suffix" or (name in WITH_A_MODEL and self._falls_back):
                found.append(self._suffix())
        return found

    def _draft_model(self) -> Model | None:
        """The draft model, or None with a notice; the text then drafts alone."""
        draft, refusal = self._loaded()
        if draft is None and self.options.require_draft:
            raise DraftIncompatibleError(refusal or "drafting is off")
        if refusal is not None and self.file is not None:
            self.notices.append(f"{refusal}; drafting from the text instead")
        return draft

    def _loaded(self) -> tuple[Model | None, str | None]:
        """The draft model, or why there is none; neither where none is wanted."""
        if not uses_draft(self.names, self.files):
            return None, None
        if self.file is None:
            return None, "there is no draft model"
        refusal = self._fit.left_out
        if self.files.kind not in {None, MODEL}:
            refusal = self.files.trouble(MODEL)
        if refusal is not None:
            return None, refusal
        try:
            if self.files.draft is None:  # llama.cpp may abort on what we could not read
                _ = self.file.header
            draft = self.parts.model(self.file.path, self._fit.draft)
        except Interrupted:
            raise
        except LocalspecError as error:
            if self.options.draft is not None or self.options.require_draft:
                raise
            return None, str(error)
        mismatch = self._mismatch(draft)
        if mismatch is None:
            self._look_at(draft)
            return draft, None
        return None, f"draft {draft.path.name} cannot draft for {self._model.path.name}: {mismatch}"

    def _with_head(self, name: str) -> list[Drafter]:
        """The drafter from a head; with a notice, none or the text in its place."""
        insists = insists_on(self.options)
        named = insists or self.options.draft not in {None, NO_DRAFT}
        refusal = self.files.trouble(name)
        if refusal is None and self.features is not None:
            refusal = f"only one head drafts at a time, so {name} does not"
        if refusal is not None and named:
            raise DraftIncompatibleError(refusal)
        if refusal is None and not self.files.in_target(name):
            refusal = self._fit.left_out
        if refusal is None:
            try:
                return [self._opened(name)]
            except OutOfMemoryError as error:
                if insists:
                    raise
                refusal = f"the {name} head does not fit: {error}"
            except ModelFileError as error:
                if named:
                    raise _as_named(error) from None
                refusal = str(error)
        self.notices.append(f"{refusal}; drafting from the text instead")
        return [] if _FROM_THE_TEXT & {*self.names} else [self._suffix()]

    def _opened(self, name: str) -> Drafter:
        if name == MEDUSA:
            return self._computed_here()
        head, file = self._model, self.target_file
        if not self.files.in_target(name):
            assert self.file is not None  # its header was read
            file = self.file
            head = self.parts.model(file.path, self._fit.draft, alone=False)
        planned = self._fit.draft
        kv_type = planned.kv_type if planned else self._target_kv

        def into(kind: type[Head], model: Model) -> Head:
            return self.parts.head(kind, model, self.target, kv_type)

        try:
            found = opened(name, head, file, self._model, self.files, into, self.favours)
        except LocalspecError:
            if head is not self._model:
                self.parts.unload(head)
            raise
        self._look_at(head)
        return self._taken(name, found)

    def _look_at(self, draft: Model) -> None:
        """Take note of a draft that was trained for less than the chat may hold."""
        trained, room = draft.n_ctx_train, min(self._fit.context, self._model.n_ctx_train)
        if draft is not self._model and 0 < trained < room:
            self.notices.append(
                f"{draft.path.name} was trained for {trained} tokens, and the context has {room}: "
                "beyond that fewer of its drafts may stand"
            )

    def _computed_here(self) -> Drafter:
        """Medusa heads: llama.cpp knows nothing of these."""
        assert self.file is not None  # its header was read
        heads = self.parts.medusa(self.file, self.target_file, self.target)
        layers = 0 if self._fit.draft is None else self._fit.draft.gpu_layers
        tap = self.files.tap(MEDUSA)
        found = opened_medusa(self.file.path, layers, heads, self.target, tap, self.favours)
        return self._taken(MEDUSA, found)

    def _taken(self, name: str, found: Opened) -> Drafter:
        self.features, self.timed[name] = found.features, found.timed
        self.uses_file = self.uses_file or not self.files.in_target(name)
        return found.drafter

    def _suffix(self) -> Drafter:
        return Suffix(self._shortest, self._remembered())

    def _mismatch(self, draft: Model) -> str | None:
        """Why the draft cannot serve the target; None if it can, by translation if need be."""
        if not draft.partial_removal:
            return "it keeps a recurrent state that cannot forget rejected tokens"
        mismatch = vocabulary_mismatch(self._model, draft)
        if mismatch is None:
            return None
        translation = translate(self._model, draft)
        too_foreign = too_little(translation, mismatch)
        if too_foreign is not None:
            return too_foreign
        self._translation = translation
        self.notices.append(
            f"{draft.path.name} has another vocabulary: it drafts the {len(translation.targets)} "
            f"tokens that both know, {translation.shared:.0%} of the smaller one"
        )
        return None

    def _with_model(self, name: str, draft: Model) -> Drafter:
        planned = self._fit.draft  # None where only llama.cpp could read its header
        kv_type = planned.kv_type if planned else draft_kv_type(None, self._target_kv)
        if name == "tree" and self._translation is None:
            own = branches(self.options, self.names, self.files, draft, self.notices)
            context = self.parts.context(draft, kv_type, own)
            self.timed[name] = of_context(context)
            shared = min(draft.n_vocab, self._model.n_vocab)
            chains = ChainDrafter(LlamaDraftModel(context, shared), self.favours, name)
            return TreeDrafter(chains, LlamaTarget(context), shared, self.favours)
        context = self.parts.context(draft, kv_type)
        self.timed["model"] = of_context(context)
        model: DraftModel = LlamaDraftModel(context, self._model.n_vocab)
        if self._translation is not None:
            model = TranslatedModel(LlamaDraftModel(context, draft.n_vocab), self._translation)
        return ChainDrafter(model, self.favours)

    def _remembered(self) -> list[list[int]]:
        """Tokens of earlier chats, where the person asked for them."""
        if not self.options.remember:
            return []
        try:
            return remembered(lambda text: self._model.tokenize(text, special=False, bos=False))
        except ChatsError as error:
            self.notices.append(f"{error}; drafting without earlier chats")
            return []

    @property
    def _model(self) -> Model:
        """The target's."""
        return self.target.model

    @property
    def _fit(self) -> Fit:
        return self.parts.fit

    @property
    def _target_kv(self) -> str:
        return self._fit.target.kv_type

    @property
    def _shortest(self) -> int:
        computes = self.draft is not None or HEADS & {*self.names}
        return _BEFORE_A_MODEL if computes else 1

    @property
    def _falls_back(self) -> bool:
        """Whether the text stands in for a draft model: where one was expected, and not asked
        too.
        """
        return self.file is not None and not _FROM_THE_TEXT & {*self.names}


def _as_named(error: ModelFileError) -> LocalspecError:
    """What to say of a head that was named: one that this build cannot run is no damaged file."""
    unsupported = isinstance(error, UnsupportedModelError)
    return DraftIncompatibleError(str(error)) if unsupported else error


__all__ = ["Gathering"]
