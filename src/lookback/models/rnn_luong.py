"""The RNN that looks back after each step (Luong et al. 2015): the lessons' equation (1)."""

from typing import Literal

import torch
from torch import Tensor, nn

from lookback.attention import Maps
from lookback.models.base import Memory
from lookback.models.recurrent import SCORES, Hidden, LookBack, Recurrent
from lookback.rules import Fraction, PositiveInt


class RnnLuong(Recurrent):
    """Each decoder state asks; context and state together make the output (section 3, equation 5).

    The output is read from tanh(W [context; state]). Nothing of it goes back into the recurrent layers (no input
    feeding, section 3.3), so all places of a target are worked out in one call.

    Parameters that are not listed are those of `Recurrent`.

    Args:
        score: `dot`, `general` or `additive`: see `recurrent.py`.
    """

    def __init__(
        self,
        source_symbols: int,
        target_symbols: int,
        *,
        d_model: PositiveInt,
        num_layers: PositiveInt,
        cell: Literal["gru", "lstm"],
        bidirectional: bool,
        dropout: Fraction,
        tied: bool,
        score: Literal["dot", "general", "additive"],
    ) -> None:
        super().__init__(source_symbols, target_symbols, d_model, num_layers, cell, bidirectional, dropout, tied)
        self.look_back = LookBack(SCORES[score](d_model))
        self.combine = nn.Linear(2 * d_model, d_model)

    def read(self, memory: Memory) -> dict[str, Tensor]:
        """See `Recurrent.read`: the source's side of the scores."""
        return {"keys": self.look_back.score.keys(memory.states)}

    def write(
        self, x: Tensor, hidden: Hidden, memory: Memory, kept: dict[str, Tensor], maps: Maps | None
    ) -> tuple[Tensor, Hidden]:
        """See `Recurrent.write`."""
        states, hidden = self.run(x, hidden)
        context, weights = self.look_back(states, kept["keys"], memory)
        if maps is not None:
            maps[self.look_back.place] = weights
        return torch.tanh(self.combine(torch.cat([context, states], dim=-1))), hidden
