"""A GPT: a decoder-only transformer over tokens.

A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019: layer norms
before attention and MLP and after the last block, learned positions, output weights tied to
the token embedding. Without dropout, which has no parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["GPT"]


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def _attention(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.attend(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.project(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Scores of the next token, at every position.

    Parameters
    ----------
    vocabulary, context, width, layers, heads : int

    Notes
    -----
    Input int64 (n, length) with length at most `context`, output (n, vocabulary, length), as
    `torch.nn.functional.cross_entropy` takes it. GPT-2 small is (50257, 1024, 768, 12, 12):
    124 439 808 parameters.
    """

    def __init__(self, vocabulary: int, context: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(places)
        scores = nn.functional.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return scores.transpose(1, 2)
