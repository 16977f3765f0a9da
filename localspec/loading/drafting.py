"""Opening the drafters of a pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from localspec.core import drafter_registry
from localspec.core.drafter_registry import DrafterSpec, Family
from localspec.core.errors import (
    DraftIncompatibleError,
    LocalspecError,
    ModelFileError,
    OutOfMemoryError,
    UnsupportedModelError,
)
from localspec.core.options import NO_DRAFT
from localspec.drafters.base import Drafter
from localspec.drafters.lookup.common import LookupTexts
from localspec.llama import experimental
from localspec.llama.heads.hidden_states import StoredStates
from localspec.llama.timing import Timed
from localspec.loading.drafters.opening import (
    DraftFile,
    Given,
    Opened,
    Opening,
    Refused,
    load_draft,
)
from localspec.models.compat.heads import worker_problem
from localspec.models.gguf.model_file import ModelFile
from localspec.prefix_cache.memory import MB

EARLIER_TOKENS = 1 << 15
"""Tokens of earlier texts to draft from at most: about 10 MB of index, made in a tenth of a
second."""
_FALLBACK = "suffix"
"""Drafts in place of what cannot."""
_MATCH_BEFORE_A_MODEL = 4
"""Tokens that a match must have to be preferred to a draft model or a head."""


@dataclass(frozen=True, slots=True)
class EarlierTexts:
    """Texts to draft from besides the running one."""

    texts: tuple[str, ...] = ()
    """The newest first."""
    notices: tuple[str, ...] = ()
    """Why there are none, where the user asked for some."""


NO_TEXTS = EarlierTexts()


@dataclass(frozen=True, slots=True)
class Drafting:
    """The drafters of a pair, and what follows from them."""

    drafters: tuple[Drafter, ...] = ()
    """In order of preference."""
    stored: StoredStates | None = None
    """Hidden states that the target is to keep for a head."""
    timed: dict[str, Timed] = field(default_factory=dict)
    """Costs of drafters that compute, by name."""
    file: ModelFile | None = None
    """The draft file, if something is drafted from it."""
    notices: tuple[str, ...] = ()
    """Notices for users, one line each."""


@dataclass(frozen=True, slots=True)
class Drafters(Given):
    """Opens the drafters of one pair."""

    earlier: Sequence[str] = ()
    """Texts to draft from besides the running one, the newest first."""

    def open(self) -> Drafting:
        """Open those that can be had.

        Raises:
            DraftIncompatibleError: a draft cannot be used, and the options insist on it.
            LocalspecError: a draft that the user named is not there or damaged.
        """
        selection = self.selection
        draft: DraftFile | Refused | None = None
        if selection.has_model or (selection.options.require_draft and not selection.has_head):
            draft = load_draft(selection, self.draft_file, self.target.model, self.parts)
        texts = self._texts(computes=isinstance(draft, DraftFile) or selection.has_head)
        opened: list[Opened] = []
        refused: list[Refused] = []
        absent: list[str] = []
        for name in selection.names:
            spec = drafter_registry.get(name)
            taken = any(one.stored is not None for one in opened)
            found = self._opened(spec, draft, texts, head_taken=taken)
            if isinstance(found, Opened):
                opened.append(found)
            elif found is not None and found not in refused:
                if not (refused or selection.has_lookup):
                    opened.append(_lookup(drafter_registry.get(_FALLBACK), texts))
                refused.append(found)
            elif found is None and selection.options.drafter is not None:
                absent += self._absent(spec)
        notices = [
            *(draft.notices if isinstance(draft, DraftFile) else ()),
            *(notice for one in opened for notice in one.notices),
            *(f"{one.reason}; drafting from the text instead" for one in refused),
            *absent,
        ]
        return Drafting(
            drafters=tuple(one.drafter for one in opened),
            stored=next((one.stored for one in opened if one.stored is not None), None),
            timed={one.drafter.name: one.timed for one in opened if one.timed is not None},
            file=self.draft_file if any(one.uses_file for one in opened) else None,
            notices=tuple(dict.fromkeys(notices)),
        )

    def _opened(
        self,
        spec: DrafterSpec,
        draft: DraftFile | Refused | None,
        texts: LookupTexts,
        *,
        head_taken: bool,
    ) -> Opened | Refused | None:
        """The drafter of a row, why text is drafted from in its place, or None where nothing is."""
        match spec.family:
            case Family.LOOKUP | Family.PREDICTION | Family.GRAMMAR | Family.LOOKAHEAD:
                possible = not spec.needs_branching or self.target.branches > 0
                return _lookup(spec, texts) if possible else None
            case Family.MODEL:
                if isinstance(draft, DraftFile):
                    return self._call(spec, draft)
                return draft if self.draft_file is not None else None
            case Family.HEAD:
                return self._head(spec, taken=head_taken)
            case Family.NONE:
                return None

    def _absent(self, spec: DrafterSpec) -> Iterator[str]:
        """Why a drafter that the user named is not there."""
        if spec.family is Family.MODEL:
            name = self.target_file.path.name
            yield f"{spec.name} drafts nothing: {name} has no draft model; name one with -d"
        elif spec.needs_branching:
            yield f"{spec.name} drafts nothing: it needs draft trees"

    def _head(self, spec: DrafterSpec, *, taken: bool) -> Opened | Refused:
        """A head, or why text is drafted from in its place.

        Raises:
            DraftIncompatibleError: the head cannot be used, and the options insist on it.
            LocalspecError: the same for a file that is not there or damaged, or for want of memory.
        """
        options, headers = self.selection.options, self.selection.headers
        insists = self.selection.insists_on_head
        named = insists or options.draft not in {None, NO_DRAFT}
        problem = self._problem(spec, taken=taken)
        if problem is not None and named:
            raise DraftIncompatibleError(problem)
        if problem is None and not headers.in_target(spec.name):
            problem = self.parts.fit.left_out
        if problem is not None:
            return Refused(problem)
        try:
            return self._call(spec)
        except OutOfMemoryError as error:
            if insists:
                raise
            return Refused(f"the {spec.name} head does not fit: {error}")
        except ModelFileError as error:
            if named:
                raise _as_named(error) from None
            return Refused(str(error))

    def _problem(self, spec: DrafterSpec, *, taken: bool) -> str | None:
        if spec.experimental and experimental.calls() is None:
            return "this build of llama.cpp does not expose the target's hidden states"
        problem = self.selection.headers.problem(spec.name)
        head = self.selection.headers.sidecar(spec.name)
        if problem is None and head is not None and self.target.model.remote is not None:
            problem = worker_problem(head)
        if problem is None and taken:
            return f"only one head drafts at a time, so {spec.name} does not"
        return problem

    def _call(self, spec: DrafterSpec, draft: DraftFile | None = None) -> Opened:
        open_drafter: Callable[[Opening], Opened] = spec.opener()
        pair = self.selection, self.target_file, self.draft_file, self.target, self.parts
        return open_drafter(Opening(*pair, self.favoured, spec, draft))

    def _texts(self, *, computes: bool) -> LookupTexts:
        """The newest earlier texts as tokens, within bounds. Where a draft model or a head
        ``computes`` drafts, short matches are left to it.
        """
        room, found = EARLIER_TOKENS, list[tuple[int, ...]]()
        for text in self.earlier:
            if room <= 0:
                break
            tokens = self.target.model.tokenize(text, special=False, bos=False)[-room:]
            room -= len(tokens)
            found.append(tuple(tokens))
        return LookupTexts(
            _MATCH_BEFORE_A_MODEL if computes else 1,
            tuple(found[::-1]),
            self.selection.options.draft_memory * MB,
        )


def _lookup(spec: DrafterSpec, texts: LookupTexts) -> Opened:
    open_drafter: Callable[[LookupTexts], Drafter] = spec.opener()
    return Opened(open_drafter(texts))


def _as_named(error: ModelFileError) -> LocalspecError:
    """The error for a head that was named: one that this build cannot run is not damaged."""
    unsupported = isinstance(error, UnsupportedModelError)
    return DraftIncompatibleError(str(error)) if unsupported else error
