"""The encoder-decoder RNN without attention: all that is read must pass through one state.

Sutskever et al. 2014 (LSTM, sources reversed). Cho et al. 2014 (GRU) let the decoder read that state at every step;
here, as in Sutskever, it only starts from it.
"""

from typing import Literal

from torch import Tensor

from lookback.attention import Maps
from lookback.models.base import Memory
from lookback.models.recurrent import Hidden, Recurrent, reverse_rows
from lookback.rules import Fraction, PositiveInt


class Rnn(Recurrent):
    """The decoder starts from the encoder's final state and sees nothing else of the source.

    That state is read at each row's last real symbol; the backward half of a bidirectional encoder, at its first.

    Parameters that are not listed are those of `Recurrent`.

    Args:
        source_order: `reversed` reads each source, marks included, from its end (Sutskever et al. 2014,
            section 3.3).
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
        source_order: Literal["forward", "reversed"],
    ) -> None:
        super().__init__(source_symbols, target_symbols, d_model, num_layers, cell, bidirectional, dropout, tied)
        self.source_order = source_order
        self.state_numbers = len(self.parts) * num_layers * d_model

    def encode(self, source: Tensor, lengths: Tensor, maps: Maps | None = None) -> Memory:
        """See `Seq2Seq.encode`."""
        if self.source_order == "reversed":
            source = reverse_rows(source, lengths)
        return super().encode(source, lengths, maps)

    def write(
        self, x: Tensor, hidden: Hidden, memory: Memory, kept: dict[str, Tensor], maps: Maps | None
    ) -> tuple[Tensor, Hidden]:
        """See `Recurrent.write`."""
        return self.run(x, hidden)
