"""Opening multi-token prediction: layers of the target's file, of a file of their own, or an
assistant that shares the target's cache.
"""

from __future__ import annotations

from localspec.drafters.heads.forward_only import ForwardOnlyDrafter
from localspec.drafters.heads.shared_kv import SharedModel
from localspec.llama.heads.hidden_states import Features, NextStates
from localspec.llama.heads.mtp import MtpLayer, MtpLayers
from localspec.llama.heads.shared_kv import Assistant
from localspec.llama.model import Model
from localspec.llama.timing import TimedContext
from localspec.loading.drafters.autoregressive_head import (
    check_width,
    check_words,
    head_drafter,
    shared_vocabulary,
)
from localspec.loading.drafters.opening import Opened, Opening
from localspec.models.compat import heads


def open_drafter(opening: Opening) -> Opened:
    """Open the layers of a file whose header was checked.

    Raises:
        UnsupportedModelError, ModelFileError, OutOfMemoryError
    """
    target, sidecar = opening.target_header, opening.sidecar
    tap = NextStates(heads.state_width(target))
    with opening.head_model() as model:
        if sidecar is not None and heads.shares_cache(sidecar):
            return _assistant(opening, model, tap)
        layers = heads.next_layers(sidecar or target)
        head = opening.head(MtpLayers if layers > 1 else MtpLayer, model)
        check_words(opening.head_file, shared_vocabulary(opening, head))
        check_width(opening, head, tap)
        return head_drafter(opening, head, tap)


def _assistant(opening: Opening, model: Model, tap: NextStates) -> Opened:
    head, features = opening.head(Assistant, model), Features(tap)
    vocabulary = shared_vocabulary(opening, head)
    check_words(opening.head_file, vocabulary)
    check_width(opening, head, tap)
    shared = SharedModel(head, features, vocabulary)
    drafter = ForwardOnlyDrafter(shared, opening.favoured, opening.spec.name)
    return opening.opened(drafter, TimedContext(head), features, head)
