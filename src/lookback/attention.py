"""The formula in torch, and the layer around it.

Axes, in the order in which they always stand: batch, heads, query, key, head_width; `d_model` is the width of
all heads together. Rows of an attention map are queries, columns are keys.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lookback.positions.base import Positions
from lookback.rules import head_width
from lookback.view import View, hide


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """softmax(query key^T / sqrt(d_k) + bias) value: Vaswani et al. 2017, equation (1).

    Args:
        query: (batch, heads, query, head_width).
        key: (batch, heads, key, head_width).
        value: (batch, heads, key, head_width).
        mask: boolean, 4-d, broadcasts to (batch, heads, query, key); True = may look. None = may look everywhere.
        bias: added to the scores; 4-d, broadcasts likewise.

    Returns:
        context (batch, heads, query, head_width) and weights (batch, heads, query, key). Each row of weights
        sums to 1 and is exactly 0 where the mask is False. A row that may look nowhere has weights 0 and
        context 0, and finite gradients. Context has the dtype of value; weights that of query and key, or of the
        bias if that is wider; under autocast, what autocast makes of them. Dividing before the product keeps
        float16 from overflowing.

    Raises:
        ValueError: if the mask is not boolean or not 4-d.
    """
    check_mask(mask)
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)  # (batch, heads, query, key)
    if bias is not None:
        scores = scores + bias
    weights = masked_softmax(scores, mask)
    return weights.to(value.dtype) @ value, weights


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the keys that may be looked at; exactly 0 elsewhere, and everywhere if there are none.

    Args:
        scores: (batch, heads, query, key).
        mask: as in `attend`.
    """
    if mask is None:
        return torch.softmax(scores, dim=-1)
    weights = torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=-1)
    return weights.masked_fill(~mask, 0.0)


def attend_fused(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """The context of `attend` by torch's fused kernel, which never forms the weights: same arguments, same errors.

    The kernel has no gradient for a bias; where one is asked for, the formula beats what torch does instead.
    That a row that may look nowhere has context 0 here too rests on torch's own rule for such rows (since 2.5).
    """
    check_mask(mask)
    if bias is not None and bias.requires_grad:
        return attend(query, key, value, mask, bias)[0]
    if bias is not None:
        bias = bias.to(query.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, -math.inf)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


SHORT = 32  # keys up to which torch's fused kernel is slower on the CPU than products of many small matrices


def attend_short(query: Tensor, key: Tensor, value: Tensor, added: Tensor) -> Tensor:
    """The context of `attend`, for rows of few keys.

    Args:
        query: as in `attend`.
        key: likewise.
        value: likewise.
        added: bias and mask in one, `view.HIDDEN` where the query may not look; broadcasts to (batch, heads, query,
            key). A query that may look nowhere gets the mean of all values, not 0: only `View.packed` comes here.
    """
    batch, heads, queries, width = query.shape
    flat = [part.reshape(batch * heads, -1, width) for part in (query, key, value)]
    added = added.expand(batch, heads, queries, key.shape[2]).reshape(batch * heads, queries, -1)
    scores = torch.baddbmm(added, flat[0], flat[1].transpose(1, 2), alpha=1 / math.sqrt(width))
    return torch.bmm(torch.softmax(scores, dim=-1), flat[2]).view(batch, heads, queries, -1)


def check_mask(mask: Tensor | None) -> None:
    """Refuse a mask that attention could misread.

    A 0/1 float mask would be added instead of applied, and a 3-d mask is silently read as one per head whenever
    the batch is as large as the number of heads.

    Raises:
        ValueError: if the mask is not boolean or not 4-d.
    """
    if mask is not None and (mask.dtype != torch.bool or mask.dim() != 4):
        raise ValueError(
            "mask must be boolean (True = may look) and 4-d (batch, heads, query, key), "
            f"but is {mask.dtype} of shape {tuple(mask.shape)}"
        )


BLOCK_SCORES = 2**25  # so many at once, where no gradient is needed: a long source would not fit into memory


class KeyValue(NamedTuple):
    """Keys and values of all heads: each (batch, heads, key, head_width)."""

    key: Tensor
    value: Tensor


Maps = dict[str, Tensor]
"""Where a watched pass puts its attention weights: place, such as `cross/layer0` -> (batch, heads, query, key)."""

Change = Callable[[Tensor, Tensor | None], Tensor]
"""A question "what if": weights and mask, shaped as in `attend` -> the weights to use instead."""


class AttentionLayer(nn.Module):
    """What every layer of attention has, so that its weights can be found and questioned.

    Args:
        place: the name of its map, such as `encoder_self/layer0`.
        num_heads: heads of its map.

    Attributes:
        change: if set, what it makes of the weights is used, and shown, in their place: see `interventions.py`.
    """

    def __init__(self, place: str, num_heads: int) -> None:
        super().__init__()
        self.place = place
        self.num_heads = num_heads
        self.change: Change | None = None


class MultiHeadAttention(AttentionLayer):
    """Attention with several heads (Vaswani et al. 2017, section 3.2.2), for self- and cross-attention.

    There is no dropout on the weights (the paper has none there), so a map is always what was used.

    Args:
        d_model: width of inputs and output; a multiple of num_heads.
        num_heads: number of heads; each has width d_model / num_heads.
        place: see `AttentionLayer`.
        gate: the encoding's, if it has one: see `Positions.gate`.
        log_length: multiply all scores, bias included, by `View.sharpness`.
        scale: False undoes the formula's division by sqrt(d_k), to see what it is there for.

    Raises:
        ValueError: if d_model is not a multiple of num_heads.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        place: str = "attention",
        gate: nn.Module | None = None,
        log_length: bool = False,
        scale: bool = True,
    ) -> None:
        super().__init__(place, num_heads)
        self.head_width = head_width(d_model, num_heads)
        self.gate = gate
        self.log_length = log_length
        self.stretch = 1.0 if scale else math.sqrt(self.head_width)
        self.query_projection = nn.Linear(d_model, d_model)
        self.key_projection = nn.Linear(d_model, d_model)
        self.value_projection = nn.Linear(d_model, d_model)
        self.output_projection = nn.Linear(d_model, d_model)

    def split_heads(self, x: Tensor) -> Tensor:
        """(batch, length, d_model) -> (batch, heads, length, head_width)."""
        return x.view(*x.shape[:2], self.num_heads, self.head_width).transpose(1, 2)

    def keys_values(self, x: Tensor, positions: Positions, index: Tensor) -> KeyValue:
        """Project what is looked at; a decoder keeps the result between steps.

        Args:
            x: (batch, key, d_model).
            positions: turns the keys, if it has something to say there.
            index: the place of each key, as in `Positions`.
        """
        both = (self.key_projection, self.value_projection)  # in one product, which is cheaper than two
        weight, offset = (torch.cat([getattr(one, name) for one in both]) for name in ("weight", "bias"))
        key, value = (self.split_heads(part) for part in F.linear(x, weight, offset).chunk(2, dim=-1))
        return KeyValue(positions.rotate(key, index), value)

    def asked(self, x: Tensor, view: View) -> tuple[Tensor, Tensor | None]:
        """What meets the keys: queries as they enter the product, and what is added to it, as `attend` takes them.

        Args:
            x: (batch, query, d_model).
            view: mask and positions.
        """
        query = view.positions.rotate(self.split_heads(self.query_projection(x)), view.query_index)
        if self.stretch != 1.0:
            query = query * self.stretch
        if self.log_length:
            query = query * view.sharpness
        bias = view.sharp_bias if self.log_length else view.bias
        if self.gate is not None and bias is not None:
            bias = self.gate(x, bias)
        return query, bias

    def forward(self, x: Tensor, keys_values: KeyValue, view: View, maps: Maps | None = None) -> Tensor:
        """Attend from x to keys and values.

        Args:
            x: (batch, query, d_model).
            keys_values: what may be looked at, from the method of that name.
            view: mask and positions.
            maps: if given, the formula runs instead of the fused kernel, and its weights are put here.

        Returns:
            (batch, query, d_model), made of context 0 where a query may look nowhere.
        """
        scores = len(x) * self.num_heads * view.key_index.shape[-1]  # of one query
        if maps is None and not torch.is_grad_enabled() and scores * x.shape[1] > BLOCK_SCORES:
            size = max(1, BLOCK_SCORES // scores)
            starts = range(0, x.shape[1], size)
            parts = [self._look(x[:, at : at + size], keys_values, view.rows(at, at + size), None) for at in starts]
            return torch.cat(parts, dim=1)
        return self._look(x, keys_values, view, maps)

    def _look(self, x: Tensor, keys_values: KeyValue, view: View, maps: Maps | None) -> Tensor:
        """`forward` for all queries at once."""
        check_mask(view.mask)
        query, bias = self.asked(x, view)
        one = x.shape[1] == 1 and not torch.is_grad_enabled()  # torch's kernel is made for many queries
        if maps is not None or self.change is not None or one:
            context = self._by_formula(query, keys_values, view.mask, bias, maps)
        elif view.packed and view.mask is not None and x.device.type == "cpu" and view.key_index.shape[-1] <= SHORT:
            if self.gate is not None:
                added = hide(bias, view.mask)
            else:
                added = view.sharp_added if self.log_length else view.added
            context = attend_short(query, *keys_values, added.to(query.dtype))
        else:
            context = attend_fused(query, *keys_values, view.mask, bias)
        return self.output_projection(context.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _by_formula(
        self, query: Tensor, keys_values: KeyValue, mask: Tensor | None, bias: Tensor | None, maps: Maps | None
    ) -> Tensor:
        """The context by the formula, whose weights can be looked at and changed."""
        context, weights = attend(query, *keys_values, mask, bias)
        if self.change is not None:
            weights = self.change(weights, mask)
            context = weights.to(context.dtype) @ keys_values.value
        if maps is not None:
            maps[self.place] = weights
        return context
