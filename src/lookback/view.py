"""What the queries of one attention may look at, and where they and the keys stand."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from lookback.positions.base import Positions

HIDDEN = -1e30  # added to a score, it leaves a weight of exactly 0


def hide(bias: Tensor | None, mask: Tensor) -> Tensor:
    """Bias and mask as one number to add to each score.

    Args:
        bias: as in `attend`.
        mask: likewise.

    Returns:
        what both broadcast to, at least float32: the bias, or 0, and `HIDDEN` where the query may not look.
    """
    if bias is None:
        return torch.zeros_like(mask, dtype=torch.float32).masked_fill(~mask, HIDDEN)
    return (bias if bias.dtype == torch.float64 else bias.float()).masked_fill(~mask, HIDDEN)


@dataclass(frozen=True, eq=False)
class View:
    """What the queries of one attention may look at, and where they and the keys stand.

    Attributes:
        positions: the encoding whose doors `rotate` and `bias` this attention uses.
        query_index: (query,) or (batch, query), the place of each query in its sequence, from 0.
        key_index: (key,) or (batch, key), the place of each key in its sequence, from 0.
        mask: as in `attend`.
        key_lengths: (batch,), (1,) or (batch, query), as in `Positions.bias`, where the caller knows it.
        packed: whether a row holds several strings, under a mask that leaves every query a key.
    """

    positions: Positions
    query_index: Tensor
    key_index: Tensor
    mask: Tensor | None = None
    key_lengths: Tensor | None = None
    packed: bool = False

    def rows(self, start: int, stop: int) -> "View":
        """What some of the queries may look at."""
        mask = self.mask if self.mask is None or self.mask.shape[2] == 1 else self.mask[:, :, start:stop]
        lengths = self.key_lengths
        lengths = lengths if lengths is None or lengths.dim() == 1 else lengths[:, start:stop]
        return replace(self, query_index=self.query_index[..., start:stop], mask=mask, key_lengths=lengths)

    @cached_property
    def sharpness(self) -> Tensor:
        """log(keys that a query may look at) / log(10): (batch or 1, heads=1, query or 1, key=1).

        A softmax over more keys needs larger scores to stay as sharp (Su 2021; Nakanishi 2025, "Scalable-Softmax is
        superior for attention"). It keeps the sharpness as the length grows, as 1 / sqrt(d_k) keeps it as the width
        grows. At ten keys nothing changes.
        """
        if self.mask is None:
            visible = torch.full((1, 1, 1, 1), self.key_index.shape[-1], device=self.key_index.device)
        else:
            visible = self.mask.sum(dim=-1, keepdim=True)
        return visible.clamp(min=1).log() / math.log(10)

    @cached_property
    def added(self) -> Tensor:
        """`bias` and mask, which there must be, as `attend_short` takes them, once for all layers."""
        assert self.mask is not None
        return hide(self.bias, self.mask)

    @cached_property
    def sharp_added(self) -> Tensor:
        """The same of `sharp_bias`."""
        assert self.mask is not None
        return hide(self.sharp_bias, self.mask)

    @cached_property
    def sharp_bias(self) -> Tensor | None:
        """`bias` times `sharpness`, once for all layers."""
        return None if self.bias is None else self.bias * self.sharpness

    @cached_property
    def bias(self) -> Tensor | None:
        """The encoding's bias on the scores, worked out once for all layers that share this view."""
        return self.positions.bias(self.query_index, self.key_index, self.key_lengths)
