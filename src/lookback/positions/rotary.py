"""Rotary positions: queries and keys are turned by their places (Su et al. 2021, "RoFormer", section 3.2.2)."""

import torch
from torch import Tensor

from lookback.positions.base import Positions
from lookback.rules import PositiveFloat


def turn(x: Tensor, index: Tensor, base: float) -> Tensor:
    """Turn the pair of columns (2i, 2i + 1) by the angle index / base^(2i / width).

    The product of a turned query and a turned key then depends on their distance only.

    Args:
        x: (..., length, width), width even.
        index: (..., length).
        base: 10,000 in the paper.

    Returns:
        (..., length, width), of the dtype of x.
    """
    width = x.shape[-1]
    columns = torch.arange(0, width, 2, device=x.device, dtype=torch.float64)
    angles = index[..., None] * base ** (-columns / width)  # (..., length, width / 2)
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], dim=-1).flatten(-2)


class Rotary(Positions):
    """Turns queries and keys of self-attention by `turn`.

    Args:
        d_model: width of all heads together.
        num_heads: number of heads; d_model / num_heads must be even.
        base: see `turn`.

    Raises:
        ValueError: if the width of a head is odd.
    """

    def __init__(self, d_model: int, num_heads: int, *, base: PositiveFloat) -> None:
        super().__init__(d_model, num_heads)
        if self.head_width % 2 != 0:
            raise ValueError(
                "rotary positions need an even head width d_model / num_heads, "
                f"but d_model {d_model} / num_heads {num_heads} is {self.head_width}"
            )
        self.base = base

    def rotate(self, x: Tensor, index: Tensor) -> Tensor:
        """Turn every head alike."""
        return turn(x, index if index.dim() == 1 else index[:, None], self.base)
