"""The shared byte-level BPE vocabulary: trained once, used by both models."""

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
BOS, START, END = 0, 1, 2
VOCAB = 2048

# The pre-tokenizer that llama.cpp calls "qwen2": every digit is a token of its own.
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train(texts: list[str], size: int = VOCAB) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[AddedToken(s, special=True, normalized=False) for s in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def load(path: Path) -> Tokenizer:
    return Tokenizer.from_file(str(path))


def pieces(tokenizer: Tokenizer) -> tuple[list[str], list[str]]:
    """Tokens in the order of their ids, and merges, as GGUF stores them."""
    data = json.loads(tokenizer.to_str())["model"]
    tokens = [t for t, _ in sorted(data["vocab"].items(), key=lambda kv: kv[1])]
    merges = [m if isinstance(m, str) else " ".join(m) for m in data["merges"]]
    return tokens, merges


def render(talk: list[tuple[str, str]], open_reply: bool = False) -> str:
    """ChatML, the same as TEMPLATE gives."""
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in talk)
    return text + "<|im_start|>assistant\n" if open_reply else text
