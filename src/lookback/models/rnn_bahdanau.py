"""The RNN that looks back before each step (Bahdanau et al. 2014): the first attention."""

from typing import Literal

import torch
from torch import Tensor, nn

from lookback.attention import Maps
from lookback.models.base import Memory
from lookback.models.recurrent import Additive, Hidden, LookBack, Recurrent
from lookback.rules import Fraction, PositiveInt


class RnnBahdanau(Recurrent):
    """The previous state asks with the additive score; its context is read by the cell, beside the last symbol.

    Each step waits for the weights of the step before, so the decoder is a loop over time. Three things differ from
    the paper: the output is read from tanh(W [state; context; symbol]), where appendix A.2.2 has a maxout of the
    state before; the first state is the encoder's last, not tanh(W state); torch's GRU resets after the product.

    All parameters are those of `Recurrent`.
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
    ) -> None:
        sizes = (d_model, num_layers, cell, bidirectional, dropout, tied)
        super().__init__(source_symbols, target_symbols, *sizes, decoder_inputs=2)
        self.look_back = LookBack(Additive(d_model))
        self.combine = nn.Linear(3 * d_model, d_model)

    def writing_steps(self, target: int) -> int:
        """See `Recurrent`: the lowest layer waits for what the top one asked for, so layers never overlap."""
        return target * self.decoder.num_layers

    def read(self, memory: Memory) -> dict[str, Tensor]:
        """See `Recurrent.read`: the source's side of the scores."""
        return {"keys": self.look_back.score.keys(memory.states)}

    def write(
        self, x: Tensor, hidden: Hidden, memory: Memory, kept: dict[str, Tensor], maps: Maps | None
    ) -> tuple[Tensor, Hidden]:
        """See `Recurrent.write`."""
        states, contexts, weights = [], [], []
        for place in range(x.shape[1]):
            asking = hidden[0][-1][:, None]  # (batch, query=1, d_model), the top layer's
            context, looked = self.look_back(asking, kept["keys"], memory)
            state, hidden = self.run(torch.cat([x[:, place : place + 1], context], dim=-1), hidden)
            states.append(state)
            contexts.append(context)
            weights.append(looked)
        if maps is not None:
            maps[self.look_back.place] = torch.cat(weights, dim=2)
        read = torch.cat([torch.cat(states, dim=1), torch.cat(contexts, dim=1), x], dim=-1)
        return torch.tanh(self.combine(read)), hidden
