"""One learned vector a place, added to the embeddings (Gehring et al. 2017; BERT)."""

import torch
from torch import Tensor, nn

from lookback.positions.base import Positions
from lookback.rules import PositiveInt


class Learned(Positions):
    """Adds row t of a learned table to the embedding at place t.

    Rows past the longest training sequence are never trained, and there are none past `max_length`.

    Args:
        d_model: width of the embeddings.
        num_heads: not used by this encoding.
        max_length: number of places, marks included.
    """

    def __init__(self, d_model: int, num_heads: int, *, max_length: PositiveInt) -> None:
        super().__init__(d_model, num_heads)
        self.max_length = max_length
        self.table = nn.Parameter(torch.randn(max_length, d_model) * d_model**-0.5)

    def embed(self, x: Tensor, index: Tensor) -> Tensor:
        """Add the table's rows to every sequence of the batch."""
        return x + self.table[index].to(x.dtype)
