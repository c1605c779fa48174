"""Fixed waves added to the embeddings (Vaswani et al. 2017, section 3.5)."""

import math

import torch
from torch import Tensor

from lookback.positions.base import Positions
from lookback.rules import PositiveFloat


def waves(index: Tensor, d_model: int, base: float) -> Tensor:
    """Column 2i is sin(index / base^(2i / d_model)), column 2i + 1 the cosine of the same angle.

    Args:
        index: (length,), places from 0.
        d_model: number of columns; an odd width ends with a sine.
        base: 10,000 in the paper; the longest wave is 2 pi times this.

    Returns:
        (length, d_model), float32.
    """
    columns = torch.arange(0, d_model, 2, device=index.device, dtype=torch.float64)
    angles = index[:, None] * torch.exp(columns * (-math.log(base) / d_model))
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :d_model].float()


class Sinusoidal(Positions):
    """Adds `waves` to the embeddings; any length can be encoded.

    Args:
        d_model: width of the embeddings.
        num_heads: not used by this encoding.
        base: see `waves`.
    """

    def __init__(self, d_model: int, num_heads: int, *, base: PositiveFloat) -> None:
        super().__init__(d_model, num_heads)
        self.base = base

    def embed(self, x: Tensor, index: Tensor) -> Tensor:
        """Add each place's waves."""
        if index.dim() == 1:
            return x + waves(index, self.d_model, self.base).to(x.dtype)
        table = waves(torch.arange(index.shape[1], device=index.device), self.d_model, self.base)
        return x + table[index].to(x.dtype)
