"""Opening a DFlash head."""

from __future__ import annotations

from localspec.drafters.heads.dflash import BlockModel
from localspec.drafters.heads.forward_only import ForwardOnlyDrafter
from localspec.llama.heads.dflash import Blocks
from localspec.llama.heads.hidden_states import Features, LayerInputs
from localspec.llama.timing import TimedBlocks
from localspec.loading.drafters.autoregressive_head import check_words, shared_vocabulary
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
        head, features = opening.head(Blocks, model), Features(tap)
        vocabulary = shared_vocabulary(opening, head)
        check_words(opening.head_file, vocabulary)
        blocks = BlockModel(head, features, vocabulary)
        drafter = ForwardOnlyDrafter(blocks, opening.favoured, opening.spec.name, head.depth)
        return opening.opened(drafter, TimedBlocks(head), features, head)
