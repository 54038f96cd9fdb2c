"""The pre-norm model as one writes it by hand with torch's own modules, and its plain training.

Independent of the package: ``nn.Linear``, ``nn.RMSNorm``, ``scaled_dot_product_attention``, RoPE by
halves, AdamW over all parameters at once, float32, the default allocator.
"""

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.o = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        query, key = turned(query, cos, sin), turned(key, cos, sin)
        out = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.o(out.transpose(1, 2).reshape(batch, length, width))


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class FeedForward(nn.Module):
    def __init__(self, width: int, ffn: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, ffn, bias=False)
        self.up = nn.Linear(width, ffn, bias=False)
        self.down = nn.Linear(ffn, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, ffn: int, eps: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width, eps), nn.RMSNorm(width, eps)
        self.attention = Attention(width, heads)
        self.feedforward = FeedForward(width, ffn)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.feedforward(self.norm2(x))


class GPT(nn.Module):
    def __init__(
        self, layers: int, width: int, heads: int, ffn: int, vocab: int, length: int, eps: float
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width, heads, ffn, eps) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps)
        self.head = nn.Linear(width, vocab, bias=False)
        half = width // heads // 2
        angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(half) / half))
        self.cos, self.sin = (f(angles).repeat(1, 2) for f in (torch.cos, torch.sin))

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))

    @torch.no_grad()
    def take(self, state: dict[str, Tensor]) -> None:
        """Take over the weights of this package's pre-norm model."""
        names = {"embed.weight": "embed.weight", "norm.weight": "final_norm.gain"}
        weights = {own: state[name] for own, name in names.items()}
        weights["head.weight"] = state["head.weight"]
        for number in range(len(self.blocks)):
            block = f"blocks.{number}."
            gate, up = state[block + "feedforward.gate_up.weight"].chunk(2)
            weights |= {
                block + "attention.qkv.weight": state[block + "attention.qkv.weight"],
                block + "attention.o.weight": state[block + "attention.o.weight"],
                block + "feedforward.gate.weight": gate,
                block + "feedforward.up.weight": up,
                block + "feedforward.down.weight": state[block + "feedforward.down.weight"],
                block + "norm1.weight": state[block + "attention_connection.norm.gain"],
                block + "norm2.weight": state[block + "feedforward_connection.norm.gain"],
            }
        self.load_state_dict(weights)


def rate(step: int, steps: int, peak: float, warmup: int, final: float) -> float:
    """Linear warm-up, then cosine."""
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / (steps - 1 - warmup)
    return peak * (final + (1 - final) * 0.5 * (1 + math.cos(math.pi * done)))


def groups(model: nn.Module, decay: float) -> list[dict[str, object]]:
    """Weight decay on matrices, none on norms."""
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


def train(
    model: GPT, batches: Iterable[tuple[Tensor, Tensor]], rates: list[float], decay: float
) -> Iterator[float]:
    """Loss of every step."""
    optimizer = torch.optim.AdamW(groups(model, decay), betas=(0.9, 0.95), foreach=True)
    for (inputs, targets), here in zip(batches, rates, strict=False):
        for group in optimizer.param_groups:
            group["lr"] = here
        loss = model(inputs, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield loss.item()
