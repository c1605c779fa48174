"""The layers of the Transformer: attention and feed-forward, each in its residual (Vaswani et al. 2017, 3.1)."""

from collections.abc import Callable
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from lookback.attention import KeyValue, Maps, MultiHeadAttention
from lookback.positions.base import Positions
from lookback.view import View

Join = Callable[[Tensor, Tensor], Tensor]
"""How a sublayer's output meets its input: x, new -> the layer's output, all of one shape."""


def residual_connection(x: Tensor, new: Tensor) -> Tensor:
    """The residual connection: x + new (He et al. 2015)."""
    return x + new


def replaced(x: Tensor, new: Tensor) -> Tensor:
    """The new alone: what the residual connection is compared with."""
    return new


class PreNorm(nn.Module):
    """x + dropout(sublayer(norm(x))): the residual path is never normalised (Xiong et al. 2020).

    Args:
        d_model: width of x.
        dropout: share of the sublayer's outputs set to 0.
        join: `residual_connection`, or `replaced`.
    """

    def __init__(self, d_model: int, dropout: float, join: Join) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.join = join

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(batch, length, d_model) -> the same."""
        return self.join(x, self.dropout(sublayer(self.norm(x))))

    @staticmethod
    def after_stack(d_model: int) -> nn.Module:
        """Pre-norm needs one more norm after the last layer."""
        return nn.LayerNorm(d_model)


class PostNorm(nn.Module):
    """norm(x + dropout(sublayer(x))): the paper's form; deep stacks of it need warm-up.

    Arguments as in `PreNorm`.
    """

    def __init__(self, d_model: int, dropout: float, join: Join) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.join = join

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(batch, length, d_model) -> the same."""
        return self.norm(self.join(x, self.dropout(sublayer(x))))  # type: ignore[no-any-return]

    @staticmethod
    def after_stack(d_model: int) -> nn.Module:
        """The last layer has ended in a norm already."""
        return nn.Identity()


class NoNorm(nn.Module):
    """x + dropout(sublayer(x)), to see what norms are there for. Arguments as in `PreNorm`."""

    def __init__(self, d_model: int, dropout: float, join: Join) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.join = join

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(batch, length, d_model) -> the same."""
        return self.join(x, self.dropout(sublayer(x)))

    @staticmethod
    def after_stack(d_model: int) -> nn.Module:
        """There is no norm anywhere."""
        return nn.Identity()


RESIDUALS: dict[str, type[PreNorm | PostNorm | NoNorm]] = {"pre": PreNorm, "post": PostNorm, "none": NoNorm}


class Sizes(NamedTuple):
    """What all layers of a model have in common; see `Transformer`."""

    d_model: int
    num_heads: int
    d_ff: int
    dropout: float
    norm: str
    join: Join
    log_length: bool
    scale: bool

    def attention(self, place: str, positions: Positions) -> MultiHeadAttention:
        """The attention of one layer."""
        return MultiHeadAttention(
            self.d_model, self.num_heads, place, positions.gate(), self.log_length, self.scale
        )

    def residuals(self, count: int) -> nn.ModuleList:
        """What is around each sublayer of one layer."""
        around = RESIDUALS[self.norm]
        return nn.ModuleList(around(self.d_model, self.dropout, self.join) for _ in range(count))


class FeedForward(nn.Module):
    """Two linear layers with ReLU between, for each place on its own (section 3.3)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, d_model) -> the same."""
        return self.outer(F.relu(self.inner(x)))  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each with its residual."""

    def __init__(self, sizes: Sizes, attention: MultiHeadAttention) -> None:
        super().__init__()
        self.attention = attention
        self.feed_forward = FeedForward(sizes.d_model, sizes.d_ff)
        self.residuals = sizes.residuals(2)

    def forward(self, x: Tensor, view: View, maps: Maps | None) -> Tensor:
        """(batch, source, d_model) -> the same."""

        def attention(x: Tensor) -> Tensor:
            memory = self.attention.keys_values(x, view.positions, view.key_index)
            return self.attention(x, memory, view, maps)  # type: ignore[no-any-return]

        x = self.residuals[0](x, attention)
        return self.residuals[1](x, self.feed_forward)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Self-attention over what was written, cross-attention to what was read, and feed-forward."""

    def __init__(
        self, sizes: Sizes, self_attention: MultiHeadAttention, cross_attention: MultiHeadAttention
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feed_forward = FeedForward(sizes.d_model, sizes.d_ff)
        self.residuals = sizes.residuals(3)

    def forward(
        self,
        x: Tensor,
        past: Callable[[KeyValue], KeyValue],
        memory: KeyValue,
        self_view: View,
        cross_view: View,
        maps: Maps | None,
    ) -> Tensor:
        """Run the layer on all target places at once, or on the newest one.

        Args:
            x: (batch, query, d_model).
            past: given the keys and values of x, returns all that x may look back at.
            memory: this layer's keys and values of the source.
            self_view: mask and positions of self-attention.
            cross_view: mask and positions of cross-attention.
            maps: as in `MultiHeadAttention.forward`.
        """

        def self_attention(x: Tensor) -> Tensor:
            new = self.self_attention.keys_values(x, self_view.positions, self_view.query_index)
            return self.self_attention(x, past(new), self_view, maps)  # type: ignore[no-any-return]

        def cross_attention(x: Tensor) -> Tensor:
            return self.cross_attention(x, memory, cross_view, maps)  # type: ignore[no-any-return]

        x = self.residuals[0](x, self_attention)
        x = self.residuals[1](x, cross_attention)
        return self.residuals[2](x, self.feed_forward)  # type: ignore[no-any-return]
