"""Learned relative positions with clipped distances (Shaw et al. 2018; the scalar form of Raffel et al. 2020)."""

import torch
from torch import Tensor, nn

from lookback.positions.base import Positions, distances, look_up
from lookback.rules import Clip


class Relative(Positions):
    """Adds a learned number for each head and each clipped distance key place - query place.

    Distances beyond `clip` share the last number on their side, so that no length is out of the table.

    Args:
        d_model: not used by this encoding.
        num_heads: number of heads, each with numbers of its own.
        clip: largest distance that is told apart.
    """

    crosses = True

    def __init__(self, d_model: int, num_heads: int, *, clip: Clip) -> None:
        super().__init__(d_model, num_heads)
        self.clip = clip
        self.table = nn.Parameter(torch.zeros(num_heads, 2 * clip + 1))

    def bias(self, query_index: Tensor, key_index: Tensor, key_lengths: Tensor | None) -> Tensor:
        """(batch or 1, heads, query, key)."""
        return look_up(self.table, distances(query_index, key_index), self.clip)
