"""Opening an EAGLE-3 head."""

from __future__ import annotations

from localspec.llama.heads.eagle import Eagle
from localspec.llama.heads.hidden_states import LayerInputs
from localspec.loading.drafters.autoregressive_head import (
    check_words,
    head_drafter,
    shared_vocabulary,
)
from localspec.loading.drafters.opening import Opened, Opening
from localspec.models.compat import heads


def open_drafter(opening: Opening) -> Opened:
    """Open the head in the draft file, whose header was checked.

    Raises:
        UnsupportedModelError, ModelFileError, OutOfMemoryError
    """
    with opening.head_model() as model:
        assert opening.sidecar is not None  # no target holds such a head
        tap = LayerInputs(heads.target_layers(opening.sidecar), opening.target_header.n_embd)
        head = opening.head(Eagle, model)
        check_words(opening.head_file, shared_vocabulary(opening, head))
        return head_drafter(opening, head, tap)
