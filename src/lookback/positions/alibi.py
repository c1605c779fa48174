"""ALiBi: a penalty that grows with distance (Press et al. 2022, "Train Short, Test Long", section 3)."""

import torch
from torch import Tensor

from lookback.positions.base import Positions, distances


def slopes(num_heads: int) -> Tensor:
    """2^(-8 h / num_heads) for head h = 1 .. num_heads: the paper's geometric sequence.

    The paper gives it for powers of two; the same formula serves any number of heads here.

    Returns:
        (heads,), float32.
    """
    return 2.0 ** (-8.0 * torch.arange(1, num_heads + 1) / num_heads)


class Alibi(Positions):
    """Adds -slope * |query place - key place| to the scores of self-attention.

    In the decoder, where keys are never ahead, this is the paper's form; in the encoder it is its symmetric one.

    Args:
        d_model: not used by this encoding.
        num_heads: number of heads, each with a slope of its own.
    """

    slopes: Tensor

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.register_buffer("slopes", slopes(num_heads), persistent=False)

    def bias(self, query_index: Tensor, key_index: Tensor, key_lengths: Tensor | None) -> Tensor:
        """(batch or 1, heads, query, key)."""
        distance = distances(query_index, key_index).abs()  # (batch or 1, query, key)
        return -(self.slopes[:, None, None] * distance[:, None])
