"""Arguments and results of the functions that open drafters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from localspec.core.drafter_registry import DrafterSpec
from localspec.core.errors import LocalspecError
from localspec.core.values import Proposal
from localspec.drafters.base import Drafter
from localspec.llama.context import Context
from localspec.llama.heads.base import Head
from localspec.llama.heads.hidden_states import Features
from localspec.llama.model import Model
from localspec.llama.timing import Timed, TimedBlocks
from localspec.loading.drafters.draft_file import DraftFile, short_training
from localspec.loading.resources import Parts
from localspec.loading.selection import Selection
from localspec.models.gguf.header import Header
from localspec.models.gguf.model_file import ModelFile

_Head = TypeVar("_Head", bound=Head)


@dataclass(frozen=True, slots=True)
class Opened:
    """A drafter that is ready."""

    drafter: Drafter
    timed: Timed | None = None
    """Measures the cost of a drafted token; None where that is next to nothing."""
    features: Features | None = None
    """Hidden states that the target keeps for it."""
    uses_file: bool = False
    """Whether it drafts from the draft file."""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Opening:
    """All that a drafter is opened with."""

    spec: DrafterSpec
    selection: Selection
    target_file: ModelFile
    draft_file: ModelFile | None
    target: Context
    parts: Parts
    """Loads models and contexts, and frees them."""
    favoured: Proposal
    """The kind of proposal that the verifier favours."""
    draft: DraftFile | None = None
    """The loaded draft model; None for heads."""

    @property
    def target_header(self) -> Header:
        """The header of the target."""
        return self.selection.headers.target

    @property
    def sidecar(self) -> Header | None:
        """The header of the draft file that holds a head; None where the target's file does."""
        return self.selection.headers.sidecar(self.spec.name)

    @contextmanager
    def head_model(self) -> Iterator[Model]:
        """The model whose file holds the head: the target, or the draft file's, which is unloaded
        if the block fails.

        Raises:
            ModelNotFoundError, ModelFileError, UnsupportedModelError, OutOfMemoryError, Interrupted
        """
        if self.sidecar is None:
            yield self.target.model
            return
        model = self.parts.model(self.head_file.path, self.parts.fit.draft, alone=False)
        try:
            yield model
        except LocalspecError:
            self.parts.unload(model)
            raise

    @property
    def head_file(self) -> ModelFile:
        """The file that holds the head."""
        if self.sidecar is None:
            return self.target_file
        assert self.draft_file is not None  # its header was read
        return self.draft_file

    def head(self, kind: type[_Head], model: Model) -> _Head:
        """A context of that kind for a head, next to the target's.

        Raises:
            UnsupportedModelError, OutOfMemoryError
        """
        fit = self.parts.fit
        planned = fit.draft if fit.draft is not None else fit.target
        return self.parts.head(kind, model, self.target, planned.kv_type)

    def opened(self, drafter: Drafter, timed: Timed, features: Features, head: Head) -> Opened:
        """A head that was checked and is ready."""
        seconds = timed.seconds if isinstance(timed, TimedBlocks) else None
        self.parts.choose_head_threads(head, self.target, seconds)
        return Opened(
            drafter,
            timed,
            features,
            uses_file=self.sidecar is not None,
            notices=short_training(head.model, self.target.model, self.parts.fit.context),
        )
