"""The proof of a build: what it computes on this processor, compared with numpy.

``python -m localspec.llama.proof``, with ``--plain-buffers`` where weights are not to be repacked
(llama.cpp's extra buffer types: repacked weights, AMX), or with ``--own-kernels LIBRARY LIBRARIES
UNIT`` where our own kernels compute: passes of all widths must then have the same bits, too.

Run in a process of its own by `localspec.loading`, since a broken build may crash or hang. Prints a
line of JSON before each step, so that its parent knows where it ended; exit status 0 if all is
right, 3 if a logit is wrong.
"""

from __future__ import annotations

import contextlib
import math
import resource
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from localspec.core.errors import DecodeError, LocalspecError
from localspec.core.files.paths import DEMO_DIR
from localspec.core.values import Logits, Tokens
from localspec.kernels.formats import FORMATS
from localspec.kernels.proof_report import SILENCE_S, WRONG, report
from localspec.llama import library, numpy_llama, own_kernels
from localspec.llama.context import Context
from localspec.llama.devices import backend, cards_are_full, full_cards
from localspec.llama.model import Model
from localspec.models.gguf.llama_shape import LlamaShape
from localspec.models.gguf.writer import Tensor, write_gguf

VOCABULARY = 512
_SHAPE = LlamaShape(
    width=256, layers=2, feed_forward=512, heads=4, kv_heads=2, head_size=64, vocabulary=VOCABULARY
)
TYPES = ("Q4_0", "Q8_0", "Q4_K", "F16")
"""Formats whose models prove llama.cpp."""
OWN_TYPES = tuple(FORMATS)
"""Formats whose models prove our own kernels."""


def write_model(path: Path, kind: str) -> None:
    """A model of the llama architecture whose matrices are all of one of the formats.

    The weights are the same at every call; there is no tokenizer.

    Raises:
        OSError: the file cannot be written.
    """
    rng = np.random.default_rng(FORMATS[kind].ggml_type)
    tensors = []
    for name, shape in _SHAPE.tensors().items():
        form = FORMATS["F32" if len(shape) == 1 else kind]
        if len(shape) == 1:
            data = rng.uniform(0.75, 1.25, _SHAPE.width).astype(np.float32).tobytes()
        else:  # around zero with a deviation of about 1 / sqrt(inputs)
            data = form.random(math.prod(shape), 1 / np.sqrt(shape[0]), rng).tobytes()
        tensors.append(Tensor(f"{name}.weight", shape, form.ggml_type, partial(iter, [data])))
    with path.open("wb") as file:
        write_gguf(file, _SHAPE.metadata(), tensors)


PASSES = (1, 2, 3, 4, 5, 8, 16, 33, 64, 200)
"""Tokens of the passes over a model, one after the other in one sequence."""
RANDOM_TOLERANCE, TRAINED_TOLERANCE = 0.5, 1.5
"""The largest error of any logit, in standard deviations of its row, for random weights and for the
embedded pair, whose six layers amplify more. Activations are rounded to 8 bits for quantized
weights, so sound builds reach 0.22 and 0.56; a wrong row is off by three to five."""
PLAIN_BUFFERS = "--plain-buffers"
OWN_KERNELS = "--own-kernels"
IN_PART = 4
"""Exit status where only the processor was proved, since other programs fill the cards."""
DEVICE_SILENCE_S = 600
"""Seconds of a step on a device, where the first pass of a width compiles kernels: for more than a
minute on slow ones."""
_CONTEXT = 512
_THREADS = 1
"""Kernels are proved; several threads would wait for each other on a busy machine."""


@dataclass(frozen=True, slots=True)
class Case:
    """A model to compute with, and what its logits should be."""

    name: str
    path: Path
    tokens: Tokens
    expected: Logits
    """(tokens, V)."""
    tolerance: float


class WrongLogitsError(Exception):
    """llama.cpp computes something else than numpy."""


def cases(folder: Path, kinds: Sequence[str] = TYPES) -> Iterator[Case]:
    """A model of each kind of weights, made in ``folder``, then the embedded pair."""
    rng = np.random.default_rng(0)
    n = sum(PASSES)
    for kind in kinds:
        path = folder / f"{kind}.gguf"
        write_model(path, kind)
        tokens = rng.integers(0, VOCABULARY, n).tolist()
        yield Case(kind, path, tokens, numpy_llama.logits(path, tokens), RANDOM_TOLERANCE)
    for name in ("target", "draft"):
        path = DEMO_DIR / f"{name}.gguf"
        tokens = _text_tokens(path)[:n]
        expected = numpy_llama.logits(path, tokens)
        yield Case(f"the embedded {name}", path, tokens, expected, TRAINED_TOLERANCE)


def _text_tokens(path: Path) -> Tokens:
    report(at=f"loading {path.name}")
    model = Model(path, gpu_layers=0, extra_buffers=False)
    try:
        text = (DEMO_DIR / "MODEL_CARD.md").read_text(encoding="utf-8")
        return model.tokenize(text)
    finally:
        model.close()


def deviation(rows: Logits, expected: Logits) -> float:
    """The largest error in standard deviations of its row; NaN if a logit is not finite."""
    if not np.isfinite(rows).all():
        return float("nan")
    errors = np.abs(rows - expected).max(axis=1) / expected.std(axis=1)
    return float(errors.max())


def prove(
    case: Case, place: str, *, gpu_layers: int | None, extra_buffers: bool, own: bool = False
) -> float:
    """Compute all `PASSES` and return the largest deviation.

    Raises:
        WrongLogitsError: a logit is wrong; with the pass.
        LocalspecError: llama.cpp refuses the model or a pass.
    """
    worst, at = 0.0, 0
    limit = SILENCE_S if gpu_layers == 0 else DEVICE_SILENCE_S
    with contextlib.ExitStack() as stack:
        report(limit, at=f"loading {case.name} on {place}")
        model = Model(
            case.path,
            gpu_layers=gpu_layers,
            extra_buffers=extra_buffers,
            own_kernels=own,
            generates=False,
        )
        stack.callback(model.close)
        context = Context(model, n_ctx=_CONTEXT, threads=_THREADS)
        stack.callback(context.close)
        if own and not model.uses_own_kernels:
            raise WrongLogitsError(f"{case.name}: no weight went to our own kernels")
        computed = np.full(case.expected.shape, np.nan, np.float32)
        for n in PASSES:
            where = f"{case.name} on {place}, a pass of {n} token{'s' * (n > 1)}"
            report(limit, at=where)
            rows = min(n, context.outputs)
            (found,) = context.forward([(0, case.tokens[at : at + n], rows)])
            at += n
            error = deviation(found, case.expected[at - rows : at])
            if np.isnan(error):
                raise WrongLogitsError(f"{where}: logits that are not numbers")
            if error > case.tolerance:
                text = f"{where}: a logit is off by {error:.2g} standard deviations"
                raise WrongLogitsError(f"{text}, {case.tolerance} are tolerated")
            worst = max(worst, error)
            computed[at - rows : at] = found
        if own:
            _require_same_bits(case, context, computed)
    return worst


def _require_same_bits(case: Case, context: Context, computed: Logits) -> None:
    """Compare with passes over one token each; rows of NaN in ``computed`` were not asked for.

    Raises:
        WrongLogitsError: other bits.
    """
    where = f"{case.name}, bits of wide passes"
    report(at=where)
    context.truncate(0, 0)
    for i, token in enumerate(case.tokens):
        (single,) = context.forward([(0, [token], 1)])
        if not np.isnan(computed[i, 0]) and not np.array_equal(single[0], computed[i]):
            off = np.abs(single[0] - computed[i]).max() / case.expected[i].std()
            text = f"{where}: token {i} differs from a pass of its own by {off:.2g}"
            raise WrongLogitsError(f"{text} standard deviations")


def main(arguments: list[str]) -> int:
    """Prove every case on the processor, and on the device that this build offloads to."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is an answer here
    library.errors_to(sys.stderr)  # the parent tells a lack of memory from a fault
    extra_buffers = PLAIN_BUFFERS not in arguments
    places: dict[str, int | None] = {"the processor": 0}
    device = backend()
    own = OWN_KERNELS in arguments
    full = cards_are_full()
    left_out = not own and (full or bool(full_cards()))
    if device != "cpu" and not full:
        places[device] = None
    if own:
        path, libraries, unit = arguments[-3:]
        report(at="registering the kernels")
        own_kernels.register(Path(path), Path(libraries), unit)
        places = {f"{unit}": 0}
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="localspec-proof-") as folder:
        for case in cases(Path(folder), OWN_TYPES if own else TYPES):
            for place, layers in places.items():
                try:
                    found = prove(
                        case, place, gpu_layers=layers, extra_buffers=extra_buffers, own=own
                    )
                except (WrongLogitsError, DecodeError) as error:
                    report(wrong=str(error))
                    return WRONG
                except LocalspecError as error:
                    sys.stderr.write(f"{error}\n")
                    return error.exit_code
                worst = max(worst, found)
                report(case=case.name, place=place, deviation=found)
    report(worst=worst)
    return IN_PART if left_out else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
