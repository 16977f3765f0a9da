"""The three heads: a state (B, T, E) for each step, and the matrix that makes logits of it.

Row k predicts token k + 1, as a row of the target does. In step s it knows the target's states up
to position k - s, so it drafts the token that is s places behind the last one that the target has
judged.
"""

from __future__ import annotations

import torch
from demo.model import Linear, Model, norm, turns
from torch import Tensor, nn
from torch.nn import functional

from heads.frozen import LAYERS, Seen
from heads.layer import Attention, FeedForward, Past, shifted

_CHAIN = ((0.0, 1), (0.25, 2), (0.7, 4))
"""(Share of the schedule, positions trained from there on): later positions cost more and need a
good first one."""


def same_talk(talk: Tensor) -> Tensor:
    """(B, T, T): which rows belong to one conversation and lie not ahead."""
    t = talk.shape[1]
    ahead = torch.ones(t, t, dtype=torch.bool).tril()[None]
    return ahead & (talk[:, :, None] == talk[:, None, :])


def opening(talk: Tensor) -> Tensor:
    """(B, T): rows that begin a conversation, and have no state before them."""
    return talk != shifted(talk, 1)


class Eagle3(nn.Module):
    """EAGLE-3 (Li et al. 2025) as llama.cpp's `eagle3` graph wires it, embeddings and head shared.

    The state that goes on is the one before the output norm.
    """

    PLACES = _CHAIN

    def __init__(self, target: Model, hidden: int = 768) -> None:
        super().__init__()
        s = target.shape
        self.embed = target.embed
        self.fc = Linear(len(LAYERS) * s.width, s.width)
        self.norm_token = nn.Parameter(torch.ones(s.width))
        self.norm_state = nn.Parameter(torch.ones(s.width))
        self.attention = Attention(2 * s.width, s.width, s.heads, s.kv_heads)
        self.norm_ffn = nn.Parameter(torch.ones(s.width))
        self.ffn = FeedForward(s.width, hidden)
        self.norm_out = nn.Parameter(target.norm.clone())
        self._begin_as(target)

    @torch.no_grad()
    def _begin_as(self, target: Model) -> None:
        """Start as the target's last layer on the latest of its states: it learns faster so."""
        last, width = target.blocks[-1], target.shape.width
        self.norm_state.copy_(last.norm1)
        self.norm_ffn.copy_(last.norm2)
        self.fc.weight.mul_(0.2)
        self.fc.weight[:, -width:] = torch.eye(width)
        for name in "qkv":
            weight = getattr(self.attention, name).weight
            weight.mul_(0.5)
            weight[:, width:] = getattr(last, name).weight
        self.attention.o.weight.copy_(last.o.weight)
        if self.ffn.gate.weight.shape == last.gate.weight.shape:
            for name in ("gate", "up", "down"):
                getattr(self.ffn, name).weight.copy_(getattr(last, name).weight)

    def forward(self, seen: Seen, steps: int) -> list[Tensor]:
        tokens = norm(functional.embedding(seen.tokens, self.embed), self.norm_token)
        state = shifted(self.fc(seen.features, quant=False), 1)
        first = opening(seen.talk)
        # The opening token of a conversation has no state: it is no key, and sees only itself.
        mask = same_talk(seen.talk) & ~first[:, None, :]
        mask = mask | torch.eye(first.shape[1], dtype=torch.bool)
        past: Past = []
        found = []
        for _ in range(steps):
            if found:
                state = shifted(state, 1)
            x = torch.cat((tokens.to(state.dtype), norm(state, self.norm_state)), -1)
            state = state + self.attention(x, turns(x.shape[1]), mask, past)
            state = state + self.ffn(norm(state, self.norm_ffn))
            found.append(norm(state, self.norm_out))
        return found

    def matrix(self, _step: int) -> Tensor:
        return self.embed


class Mtp(nn.Module):
    """Multi-token prediction (DeepSeek-V3, section 2.2) as llama.cpp's `glm4moe` graph wires it.

    The state is the one behind the final norm, and so is the state that goes on. The one routed
    expert and the shared one are together one feed-forward part, cut in two when exported.
    """

    PLACES = _CHAIN

    def __init__(self, target: Model, hidden: int = 768) -> None:
        super().__init__()
        s = target.shape
        self.embed = target.embed
        self.norm_token = nn.Parameter(torch.ones(s.width))
        self.norm_state = nn.Parameter(torch.ones(s.width))
        self.join = Linear(2 * s.width, s.width)
        self.norm_in = nn.Parameter(torch.ones(s.width))
        self.attention = Attention(s.width, s.width, s.heads, s.kv_heads)
        self.norm_ffn = nn.Parameter(torch.ones(s.width))
        self.ffn = FeedForward(s.width, hidden)
        self.norm_out = nn.Parameter(target.norm.clone())

    def forward(self, seen: Seen, steps: int) -> list[Tensor]:
        tokens = norm(functional.embedding(seen.tokens, self.embed), self.norm_token)
        # Before the opening token of a conversation stands a state of zeros, as in llama.cpp.
        state = shifted(seen.hidden, 1).masked_fill(opening(seen.talk)[..., None], 0)
        mask = same_talk(seen.talk)
        past: Past = []
        found = []
        for _ in range(steps):
            if found:
                state = shifted(state, 1)
            x = torch.cat((tokens.to(state.dtype), norm(state, self.norm_state)), -1)
            x = self.join(x, quant=False)
            x = x + self.attention(norm(x, self.norm_in), turns(x.shape[1]), mask, past)
            state = norm(x + self.ffn(norm(x, self.norm_ffn)), self.norm_out)
            found.append(state)
        return found

    def matrix(self, _step: int) -> Tensor:
        return self.embed


class Medusa(nn.Module):
    """Medusa (Cai et al. 2024, section 2.1.1): a head on the final state for each place."""

    PLACES = ((0.0, 4),)

    def __init__(self, target: Model, heads: int = 4) -> None:
        super().__init__()
        width = target.shape.width
        self.weights = nn.ParameterList(torch.zeros(width, width) for _ in range(heads))
        self.biases = nn.ParameterList(torch.zeros(width) for _ in range(heads))
        self.outputs = nn.ParameterList(target.embed.clone() for _ in range(heads))

    def forward(self, seen: Seen, steps: int) -> list[Tensor]:
        found = []
        for n in range(steps):
            x = shifted(seen.hidden, n + 1)
            inner = functional.linear(x, self.weights[n], self.biases[n])
            found.append(x + functional.silu(inner))
        return found

    def matrix(self, step: int) -> Tensor:
        return self.outputs[step - 1]


HEADS = {"eagle3": Eagle3, "mtp": Mtp, "medusa": Medusa}
